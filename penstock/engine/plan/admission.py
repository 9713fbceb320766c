"""How far the next epoch may read: up to the ends of its topics as of one moment, within the limits of the app.

`backlogs` finds the ends of all sources, as of one moment. `admit_all` goes from the last cut towards them as far as
the limits allow. Then the time is worked out (see `observe` and `watermark`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.engine.datasource.extent import Extent, extent_of, shares
from penstock.errors import DamagedError, UnavailableError
from penstock.log.frame import SPARSE, Header
from penstock.log.partition import Partition
from penstock.log.segment import scan
from penstock.log.tail import Tail
from penstock.log.topic import Topic

# A try fails only if a partition begins a new segment in the microseconds that it takes.
_TRIES = 100

Ends = dict[int, int]
"""For every partition the offset of the first row that is no longer read."""

_Place = tuple[str, int]  # a source and one of its partitions


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a source has to offer: from where the last epoch stopped to where the log ends, by partition."""

    topic: Topic
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def backlogs(sources: Mapping[str, tuple[Topic, Mapping[int, int]]]) -> dict[str, Backlog]:
    """What lies between the `starts` of each source and its end; the ends of all together hold whole transactions."""
    ends = consistent_ends({name: topic for name, (topic, _) in sources.items()})
    return {name: Backlog(topic, starts, ends[name]) for name, (topic, starts) in sources.items()}


def admit(
    topic: Topic,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
) -> Ends:
    """How far to go from `starts` towards `ends` within the limits; at least one row, whatever they are."""
    return admit_all({topic.name: Backlog(topic, starts, ends)}, max_rows=max_rows, max_bytes=max_bytes)[topic.name]


def admit_all(
    sources: Mapping[str, Backlog], *, max_rows: int | None = None, max_bytes: int | None = None
) -> dict[str, Ends]:
    """How far to go in every source within limits that hold for all of them together; at least one row in all.

    Each source gets an even share, whatever the number of its partitions, and in it each partition does; what one does
    not need goes to the others. Bytes are estimates. Limits may cut through a transaction: where they do, only the
    order within each partition is kept, and the rest of the transaction comes with a later epoch.
    """
    admitted = {
        name: {number: max(start, one.ends.get(number, start)) for number, start in one.starts.items()}
        for name, one in sources.items()
    }
    if max_rows is not None:
        admitted = _within(sources, admitted, max_rows, _rows_of)
    if max_bytes is not None:
        admitted = _within(sources, admitted, max_bytes, _bytes_of)
    return _with_one_row(sources, admitted)


# -- admission --------------------------------------------------------------------------------------------------------

_Measure = Callable[[Topic, int, tuple[int, int], int], Extent]


def _within(sources: Mapping[str, Backlog], ends: Mapping[str, Ends], limit: int, measure: _Measure) -> dict[str, Ends]:
    """As far towards `ends` as a limit allows, on rows or on bytes, whichever it is that `measure` tells."""
    extents: dict[_Place, Extent] = {}
    sizes: dict[str, Ends] = {name: {} for name in sources}
    for name, one in sources.items():
        for number, start in one.starts.items():
            end = ends[name][number]
            if start < end:
                extents[name, number] = measure(one.topic, number, (start, end), limit)
                sizes[name][number] = extents[name, number].bytes_between(start, end)
    within = {name: dict(ends[name]) for name in sources}
    for name, share in _shares_of_sources(sizes, limit).items():
        for number, count in shares(sizes[name], share).items():
            start, extent = sources[name].starts[number], extents[name, number]
            reach = int(extent.offsets[-1]) if count >= sizes[name][number] else extent.offset_after(start, count)
            within[name][number] = max(start, min(ends[name][number], reach))
    return within


def _shares_of_sources(sizes: Mapping[str, Ends], limit: int) -> dict[str, int]:
    names = sorted(sizes)
    dealt = shares({place: sum(sizes[name].values()) for place, name in enumerate(names)}, limit)
    return {name: dealt[place] for place, name in enumerate(names)}


def _rows_of(topic: Topic, number: int, span: tuple[int, int], limit: int) -> Extent:
    """How many rows lie before each offset, at least up to `limit` of them.

    Offsets tell it where no row was removed. Elsewhere they may run far ahead of the rows: frames have to be counted.
    """
    start, end = span
    if start >= _dense_from(topic.partition(number)):
        return Extent(np.array([start, end]), np.array([0, end - start]))
    offsets, rows = [np.array([start])], [np.array([0])]
    for headers in topic.headers(number, start, end):
        offsets.append(np.minimum(headers["last_offset"] + 1, end))
        rows.append(rows[-1][-1] + np.cumsum(headers["rows"], dtype=np.int64))
        if rows[-1][-1] >= limit:
            return Extent(np.concatenate(offsets), np.concatenate(rows))
    if len(offsets) == 1:
        return Extent(np.array([start, end]), np.array([0, 0]))
    offsets[-1][-1] = end  # behind the last frame there is nothing
    return Extent(np.concatenate(offsets), np.concatenate(rows))


def _dense_from(partition: Partition) -> int:
    """The offset from which on no row was removed: every offset up to the end has one."""
    manifest = partition.manifest(partition.tail().generation)
    dense = manifest.active.base_offset
    for segment in reversed(manifest.closed):
        if segment.rewritten or segment.end_offset != dense:
            break
        dense = segment.base_offset
    return dense


def _bytes_of(topic: Topic, number: int, span: tuple[int, int], limit: int) -> Extent:
    partition = topic.partition(number)
    return extent_of(partition, span[0], _enough(partition, *span, limit))


def _enough(partition: Partition, start: int, end: int, limit: int) -> int:
    """An offset before `end` that is surely `limit` bytes away: a long backlog need not be measured whole."""
    found = 0
    for segment in partition.manifest(partition.tail().generation).closed:
        if segment.base_offset > start:
            found += segment.bytes
        if found >= limit and segment.end_offset > start:
            return min(end, segment.end_offset)
    return end


def _with_one_row(sources: Mapping[str, Backlog], ends: dict[str, Ends]) -> dict[str, Ends]:
    """The same ends, with one row of what is furthest behind if they would not go on at all."""
    behind = {
        (name, number): one.ends.get(number, start) - start
        for name, one in sources.items()
        for number, start in one.starts.items()
    }
    moved = any(ends[name][number] > sources[name].starts[number] for name, number in behind)
    name, number = max(behind, key=lambda place: behind[place], default=("", 0))
    if moved or behind.get((name, number), 0) <= 0:
        return ends
    one = sources[name]
    ends[name][number] = _after_first_row(one.topic, number, one.starts[number], one.ends[number])
    return ends


def _after_first_row(topic: Topic, number: int, start: int, end: int) -> int:
    for headers in topic.headers(number, start, end):
        base, last = int(headers["base_offset"][0]), int(headers["last_offset"][0])
        # Which offsets have a row, only the body of such a frame tells; the last one has.
        between = base < start and headers["flags"][0] & SPARSE
        return min(end, (last if between else max(base, start)) + 1)
    return end


# -- the ends of several topics ---------------------------------------------------------------------------------------


def consistent_ends(topics: Mapping[str, Topic]) -> dict[str, Ends]:
    """The ends of several topics with every transaction whole: before them in all of its partitions, or in none.

    Partitions are looked at one after the other, and meanwhile transactions commit. What is behind the end of one
    partition and before that of another is told by the frames that came in between:

    1. Look at all ends, and again. If nothing moved, they are those of one moment, and transactions become visible at
       one moment.
    2. A transaction that is before only some of the second ends became visible after the first look. So it is among
       those with a frame between the two; call them torn.
    3. All torn ones were visible at the end of the second look. So a third look sees each in all its partitions, and
       every end moves to behind the last torn frame there. What stands before such a frame came earlier, was visible
       too, and is torn as well if any other end is before its frames; so this is done until nothing moves.
    """
    partitions = {
        (name, number): topic.partition(number)
        for name, topic in topics.items()
        for number in range(topic.settings.partitions)
    }
    for _ in range(_TRIES):
        ends = _untorn(partitions)
        if ends is not None:
            return {
                name: {number: ends[name, number] for number in range(topic.settings.partitions)}
                for name, topic in topics.items()
            }
    raise UnavailableError(
        f"topics {', '.join(topics)}: their partitions begin new segments faster than one can look at them",
        hint="raise segment_bytes of these topics",
    )


def _untorn(partitions: Mapping[_Place, Partition]) -> dict[_Place, int] | None:
    first, second = _look(partitions), _look(partitions)  # 1
    ends = {place: tail.end_offset for place, tail in second.items()}
    if ends == {place: tail.end_offset for place, tail in first.items()}:
        return ends
    recent = _frames_between(partitions, first, second)
    if recent is None:
        return None
    torn = {header.transaction for frames in recent.values() for header in frames} - {0}  # 2
    later = _frames_between(partitions, second, _look(partitions)) if torn else {}
    return None if later is None else _moved(ends, torn, later)


def _moved(ends: dict[_Place, int], torn: set[int], later: Mapping[_Place, list[Header]]) -> dict[_Place, int]:
    """Step 3."""
    moving = True
    while moving:
        moving = False
        for place, frames in later.items():
            end = max((header.next_offset for header in frames if header.transaction in torn), default=0)
            if end > ends[place]:
                ends[place] = end
                torn |= {header.transaction for header in frames if header.next_offset <= end} - {0}
                moving = True
    return ends


def _look(partitions: Mapping[_Place, Partition]) -> dict[_Place, Tail]:
    return {place: _decided_tail(partition) for place, partition in partitions.items()}


def _decided_tail(partition: Partition) -> Tail:
    """The tail as it was at one moment of this call.

    A transaction that is pending, and then found not to be on record, may have been committed and forgotten in between.
    It was not if it is still pending afterwards: it is forgotten only after its ends were published as plain ones.
    """
    tail = partition.tail()
    while tail.pending_transaction:
        again = partition.tail()
        if again.pending_transaction == tail.pending_transaction:
            return tail
        tail = again
    return tail


def _frames_between(
    partitions: Mapping[_Place, Partition], earlier: Mapping[_Place, Tail], later: Mapping[_Place, Tail]
) -> dict[_Place, list[Header]] | None:
    """The frames that came between two looks, by partition; None if one of them has begun a new segment."""
    found = {}
    for place, partition in partitions.items():
        if earlier[place].end_offset < later[place].end_offset:
            frames = _frames(partition, earlier[place], later[place])
            if frames is None:
                return None
            found[place] = frames
    return found


def _frames(partition: Partition, earlier: Tail, later: Tail) -> list[Header] | None:
    """The frames between two tails of the same segment; None if there is a new one, which may be rewritten by now."""
    active = partition.manifest(later.generation).active
    if not earlier.active_base == later.active_base == active.base_offset:
        return None
    try:
        file = partition.open_segment(active)
    except DamagedError:
        partition.forget_manifest()
        if partition.manifest().active == active:
            raise
        return None
    try:
        data = file.view(earlier.end_position, later.end_position - earlier.end_position)
    finally:
        file.close()
    start = earlier.end_position
    found = scan(data, start=start, next_offset=earlier.end_offset, bodies=False, data_start=start)
    if found.problem:
        raise DamagedError(
            f"{partition.where}: segment {active.name} is damaged at byte {found.problem.position}: "
            f"{found.problem.reason}",
            hint=f"run `penstock verify {partition.topic}`",
        )
    return [header for _, header in found.frames]
