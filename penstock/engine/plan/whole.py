"""Cuts without half a transaction: reading which transactions are near a cut, and moving it to a boundary of theirs.

Nothing is read where a cut has everything there is. Otherwise the summaries of what it has are, and, of what it has
not, those of rows that are not newer: rows of one transaction have the same append time, and append times of a
partition never go back. What a topic does not summarise counts as rows that were stored alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from penstock.contracts import Summaries, SummarisesRows, Topic
from penstock.engine.plan.cut import Ends
from penstock.engine.plan.transactions import (
    Cuts,
    Groups,
    Part,
    blocked_transaction,
    first_row,
    lower,
    next_in_line,
    take_whole,
)

# Transactions that earlier versions stored have times that differ by as long as their commit took, at most about this.
_SLACK = 60_000_000

Starts = Mapping[str, tuple[Topic, Mapping[int, int]]]
"""The topic of each source, and from where on it is read."""


def keep_whole(
    starts: Starts, wanted: Mapping[str, Ends], present: Mapping[str, Ends], bounds: Mapping[str, Ends]
) -> dict[str, Ends]:
    """The cut near `wanted` that has no transaction of the log on both sides, in all sources together.

    It is lowered to the boundary before. Where a transaction could then never be read, because it does not fit into the
    limits that `wanted` stands for, it is taken whole, unless it reaches over `bounds`. So some row is read, if one is
    wanted. `present` are ends that have every transaction whole.
    """
    groups = _read_groups(starts, wanted, present)
    if not groups:
        return {name: dict(ends) for name, ends in wanted.items()}
    cut, limits = _by_part(wanted), _by_part(bounds)
    lowered = lower(groups, cut)
    raised = _let_through(groups, cut, lowered)
    allowed = all(raised[part] <= max(limits.get(part, 0), lowered[part]) for part in raised)
    return _by_source(raised if allowed else lowered, wanted)


def is_whole(starts: Starts, cut: Mapping[str, Ends], present: Mapping[str, Ends]) -> bool:
    """Whether no transaction of the log is on both sides of a cut."""
    ends = _by_part(cut)
    return lower(_read_groups(starts, cut, present), ends) == ends


def _let_through(groups: Mapping[Part, Groups], wanted: Cuts, lowered: Cuts) -> dict[Part, int]:
    """The lowered cut, with a transaction that would wait forever; with some row, if nothing has moved."""
    raised, moved = dict(lowered), any(lowered[part] > groups[part].start for part in groups)
    transaction = blocked_transaction(groups, wanted, lowered)
    if not transaction and not moved:
        transaction, alone = next_in_line(groups, lowered, wanted)
        if alone is not None:
            raised[alone] = max(lowered[alone], first_row(groups[alone], lowered[alone])) + 1
    return take_whole(groups, raised, transaction) if transaction else raised


def _by_part(ends: Mapping[str, Ends]) -> dict[Part, int]:
    return {(name, number): end for name, parts in ends.items() for number, end in parts.items()}


def _by_source(cut: Mapping[Part, int], like: Mapping[str, Ends]) -> dict[str, Ends]:
    return {name: {number: cut[name, number] for number in parts} for name, parts in like.items()}


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_groups(starts: Starts, cut: Mapping[str, Ends], present: Mapping[str, Ends]) -> dict[Part, Groups]:
    """What must be known to tell which transactions the cut goes through; nothing if it goes through none."""
    parts = [(name, number) for name, ends in cut.items() for number in ends]
    ahead = {(name, number) for name, number in parts if cut[name][number] < present[name].get(number, 0)}
    if not ahead:
        return {}
    found = {
        (name, number): list(_summaries(starts[name], number, starts[name][1][number], cut[name][number]))
        for name, number in parts
    }
    newest = max((_newest_transaction(summaries) for many in found.values() for summaries in many), default=None)
    if newest is None or newest < 0:
        return {}
    for name, number in ahead:
        many = found[name, number]
        start = int(many[-1]["last_offset"][-1]) + 1 if many else cut[name][number]
        for summaries in _summaries(starts[name], number, start, present[name][number]):
            many.append(summaries)
            if int(summaries["append_time"][-1]) > newest + _SLACK:
                break
    return {part: _to_groups(starts[part[0]][1][part[1]], many) for part, many in found.items()}


def _summaries(source: tuple[Topic, Mapping[int, int]], number: int, start: int, end: int) -> Iterator[Summaries]:
    topic = source[0]
    if start < end and isinstance(topic, SummarisesRows):
        yield from topic.summaries(number, start, end)


def _newest_transaction(summaries: Summaries) -> int:
    """When the last rows of a transaction were stored; -1 if there are none."""
    times = summaries["append_time"][summaries["transaction"] != 0]
    return int(times.max()) if len(times) else -1


def _to_groups(start: int, many: list[Summaries]) -> Groups:
    fields = ("base_offset", "last_offset", "transaction", "append_time")
    columns = [
        np.concatenate([np.empty(0, np.int64), *(summaries[name].astype(np.int64) for summaries in many)])
        for name in fields
    ]
    return Groups(start, *columns)
