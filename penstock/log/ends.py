"""The ends of several topics as of one moment, without a transaction that is before some of them and behind others."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import DamagedError, UnavailableError
from penstock.log.frame import Header
from penstock.log.partition import Partition
from penstock.log.segment import scan
from penstock.log.tail import Tail
from penstock.log.topic_files import TopicFiles

# A try fails only if a partition begins a new segment in the microseconds that it takes.
_TRIES = 100

Ends = dict[int, int]
_Part = tuple[str, int]  # a topic and one of its partitions


def consistent_ends(topics: Mapping[str, TopicFiles]) -> dict[str, Ends]:
    """The ends of several topics with every transaction whole: before them in all of its partitions, or in none.

    Partitions are looked at one after the other, and meanwhile transactions commit. What is behind the end of one
    partition and before that of another is told by the frames that came in between:

    1. Look at all ends, and again. If nothing moved, they are those of one moment, and transactions become visible at
       one moment.
    2. A transaction that is before only some of the second ends became visible after the first look. So it is among
       those with a frame between the two; call them torn.
    3. All torn ones were visible at the end of the second look. So a third look sees each in all its partitions, and
       every end moves to behind the last torn frame there. What lies before such a frame came earlier, was visible
       too, and is torn as well if any other end is before its frames; so this is done until nothing moves.
    """
    partitions = {(name, number): topic.partition(number) for name, topic in topics.items() for number in topic.numbers}
    for _ in range(_TRIES):
        ends = _find_untorn_ends(partitions)
        if ends is not None:
            return {name: {number: ends[name, number] for number in topic.numbers} for name, topic in topics.items()}
    raise UnavailableError(
        f"topics {', '.join(topics)}: their partitions begin new segments faster than one can look at them",
        hint="raise segment_bytes of these topics",
    )


def _find_untorn_ends(partitions: Mapping[_Part, Partition]) -> dict[_Part, int] | None:
    first, second = _look(partitions), _look(partitions)  # 1
    ends = {key: tail.end_offset for key, tail in second.items()}
    if ends == {key: tail.end_offset for key, tail in first.items()}:
        return ends
    recent = _frames_between(partitions, first, second)
    if recent is None:
        return None
    torn = {header.transaction for frames in recent.values() for header in frames} - {0}  # 2
    later = _frames_between(partitions, second, _look(partitions)) if torn else {}
    return None if later is None else _move_behind_torn(ends, torn, later)


def _move_behind_torn(ends: dict[_Part, int], torn: set[int], later: Mapping[_Part, list[Header]]) -> dict[_Part, int]:
    """Step 3."""
    moving = True
    while moving:
        moving = False
        for key, frames in later.items():
            end = max((header.next_offset for header in frames if header.transaction in torn), default=0)
            if end > ends[key]:
                ends[key] = end
                torn |= {header.transaction for header in frames if header.next_offset <= end} - {0}
                moving = True
    return ends


def _look(partitions: Mapping[_Part, Partition]) -> dict[_Part, Tail]:
    return {key: _decided_tail(partition) for key, partition in partitions.items()}


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
    partitions: Mapping[_Part, Partition],
    earlier: Mapping[_Part, Tail],
    later: Mapping[_Part, Tail],
) -> dict[_Part, list[Header]] | None:
    """The frames that came between two looks, by partition; None if one of them has begun a new segment."""
    found = {}
    for key, partition in partitions.items():
        if earlier[key].end_offset < later[key].end_offset:
            frames = _frames(partition, earlier[key], later[key])
            if frames is None:
                return None
            found[key] = frames
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
