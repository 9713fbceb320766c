"""What holds and readers keep on disk: which rows could go, or be changed, if it were not for them. Only looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.contracts import HeldRange, Hold, ReadOffset
from penstock.log.frame import DELETES
from penstock.log.topic import Topic

Keeps = Literal["rows", "delete markers"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What one holder keeps of one partition: rows from `start` up to `end`, or the delete markers from `start` on.

    `bytes` is about what they take on disk. `dropped`: the topic is gone, so nothing is kept. `lost` are the offsets
    that retention has removed before a reader has come to them. `since` is None for groups, which do not say.
    """

    holder: str
    keeps: Keeps
    topic: str
    partition: int
    start: int
    end: int | None
    rows: int = 0
    bytes: int = 0
    lost: int = 0
    dropped: bool = False
    since: str | None = None


def kept_by_holds(holds: Sequence[Hold], topics: Mapping[str, Topic]) -> Iterator[Kept]:
    """What holds keep, of topics by their ids."""
    for hold in holds:
        for held in hold.ranges:
            yield _kept_rows(hold, held, topics.get(held.topic_id))
        for position in hold.read:
            topic = topics.get(position.topic_id)
            yield _kept_markers(hold.name, position, topic, since=hold.placed)


def kept_by_group(group: str, committed: Mapping[int, int], topic: Topic) -> Iterator[Kept]:
    """What a group keeps of a topic that it reads."""
    for number in range(topic.settings.partitions):
        position = ReadOffset(topic.name, topic.id, number, committed.get(number, 0))
        yield _kept_markers(f"group:{group}", position, topic, since=None)


def _kept_rows(hold: Hold, held: HeldRange, topic: Topic | None) -> Kept:
    rows, size = 0, 0
    for headers in topic.files.headers(held.partition, held.start, held.end) if topic else ():
        rows += int(headers["rows"].sum())
        size += int(headers["length"].sum())
    return Kept(
        hold.name,
        "rows",
        held.topic,
        held.partition,
        held.start,
        held.end,
        rows,
        size,
        dropped=topic is None,
        since=hold.placed,
    )


def _kept_markers(holder: str, position: ReadOffset, topic: Topic | None, *, since: str | None) -> Kept:
    rows, size, lost = 0, 0, 0
    if topic is not None:
        start = topic.files.start(position.partition)
        rows, size = _count_markers(topic, position.partition, max(start, position.offset))
        lost = max(0, start - position.offset)
    return Kept(
        holder,
        "delete markers",
        position.topic,
        position.partition,
        position.offset,
        None,
        rows,
        size,
        lost,
        topic is None,
        since,
    )


def _count_markers(topic: Topic, number: int, start: int) -> tuple[int, int]:
    """How many delete markers a partition has from an offset on, and about how many bytes they take."""
    count, size = 0, 0.0
    if not topic.settings.key:
        return 0, 0
    for headers in topic.files.headers(number, start, topic.files.end(number)):
        frames = headers[headers["flags"] & DELETES != 0]
        if len(frames):
            base, until = max(start, int(frames["base_offset"][0])), int(frames["last_offset"][-1]) + 1
            markers = _markers_between(topic, number, base, until)
            count += markers
            size += markers * int(frames["length"].sum()) / int(frames["rows"].sum())
    return count, round(size)


def _markers_between(topic: Topic, number: int, start: int, until: int) -> int:
    batches = topic.batches({number: start}, until={number: until}, columns=topic.settings.key)
    return sum(int(np.count_nonzero(batch.deleted)) for batch in batches if batch.deleted is not None)
