"""How far the next epoch may read: up to the ends of its topics as of one moment, within the limits of the app.

`backlogs` finds the ends of all sources, as of one moment. `admit_all` moves from the last cut towards them as far as
the limits allow. From there the cut is moved to where no transaction is cut in two (see `whole`), and the time is
worked out (see `observe` and `watermark`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.contracts import Extent, FindsConsistentEnds, Log, Topic
from penstock.engine.plan.extents import byte_extent, offset_after, row_extent, shares, size_between

Ends = dict[int, int]
"""For every partition the offset of the first row that is no longer read."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a source has to offer: from where the last epoch stopped to where the log ends, by partition."""

    topic: Topic
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def backlogs(log: Log, sources: Mapping[str, tuple[Topic, Mapping[int, int]]]) -> dict[str, Backlog]:
    """What lies between the `starts` of each source and its end.

    The ends of all sources together hold whole transactions, if the log has such a thing.
    """
    topics = {name: topic for name, (topic, _) in sources.items()}
    if isinstance(log, FindsConsistentEnds):
        found = log.consistent_ends({topic.name for topic in topics.values()})
        ends = {name: found[topic.name] for name, topic in topics.items()}
    else:
        ends = {name: topic.ends() for name, topic in topics.items()}
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
    not need goes to the others. Bytes are estimates. These ends may cut through a transaction of the log: see `whole`.
    """
    admitted = {
        name: {number: max(start, backlog.ends.get(number, start)) for number, start in backlog.starts.items()}
        for name, backlog in sources.items()
    }
    if max_rows is not None:
        admitted = _within(sources, admitted, max_rows, row_extent)
    if max_bytes is not None:
        admitted = _within(sources, admitted, max_bytes, byte_extent)
    return _with_one_row(sources, admitted)


# -- admission --------------------------------------------------------------------------------------------------------

_Measure = Callable[[Topic, int, int, int, int], Extent]


def _within(sources: Mapping[str, Backlog], ends: Mapping[str, Ends], limit: int, measure: _Measure) -> dict[str, Ends]:
    """As far towards `ends` as a limit allows, on rows or on bytes, whichever it is that `measure` tells."""
    extents: dict[tuple[str, int], Extent] = {}
    sizes: dict[str, Ends] = {name: {} for name in sources}
    for name, backlog in sources.items():
        for number, start in backlog.starts.items():
            end = ends[name][number]
            if start < end:
                extents[name, number] = measure(backlog.topic, number, start, end, limit)
                sizes[name][number] = size_between(extents[name, number], start, end)
    within = {name: dict(ends[name]) for name in sources}
    for name, share in _shares_of_sources(sizes, limit).items():
        for number, size in shares(sizes[name], share).items():
            start, extent = sources[name].starts[number], extents[name, number]
            reach = int(extent.offsets[-1]) if size >= sizes[name][number] else offset_after(extent, start, size)
            within[name][number] = max(start, min(ends[name][number], reach))
    return within


def _shares_of_sources(sizes: Mapping[str, Ends], limit: int) -> dict[str, int]:
    names = sorted(sizes)
    dealt = shares({index: sum(sizes[name].values()) for index, name in enumerate(names)}, limit)
    return {name: dealt[index] for index, name in enumerate(names)}


def _with_one_row(sources: Mapping[str, Backlog], ends: dict[str, Ends]) -> dict[str, Ends]:
    """The same ends, with one row of what is furthest behind if they would not move at all."""
    behind = {
        (name, number): backlog.ends.get(number, start) - start
        for name, backlog in sources.items()
        for number, start in backlog.starts.items()
    }
    moved = any(ends[name][number] > sources[name].starts[number] for name, number in behind)
    name, number = max(behind, key=lambda partition: behind[partition], default=("", 0))
    if moved or behind.get((name, number), 0) <= 0:
        return ends
    backlog = sources[name]
    ends[name][number] = _after_first_row(backlog.topic, number, backlog.starts[number], backlog.ends[number])
    return ends


def _after_first_row(topic: Topic, number: int, start: int, end: int) -> int:
    batch = next(topic.batches({number: start}, until={number: end}, columns=[]), None)
    return end if batch is None else int(batch.offsets[0]) + 1
