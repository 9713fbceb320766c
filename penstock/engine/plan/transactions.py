"""Keeping transactions of the log whole: which cut near a wanted one has no transaction on both sides. Pure functions.

It works on spans: what a transaction has in one partition, from its first row to behind its last. Transactions commit
while they hold all of their partitions, so they are in the same order in all of them, and moving a cut to the boundary
of one transaction moves it past few others: a few rounds over all spans are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Part = tuple[str, int]
"""A source and the number of a partition."""

Cuts = Mapping[Part, int]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows of one partition that were stored together, group by group in their order.

    `transaction` is 0 where they were stored alone. Only rows from `start` on count.
    """

    start: int
    base: Offsets
    last: Offsets
    transaction: Offsets
    append_time: Offsets


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """One entry for each transaction in each partition."""

    part: Offsets  # an index of `parts`
    transaction: Offsets  # an index, not a number
    first: Offsets
    end: Offsets
    count: int  # of transactions


def lower(groups: Mapping[Part, Groups], cut: Cuts) -> dict[Part, int]:
    """The furthest cut that is nowhere behind `cut` and has every transaction on one side."""
    parts = list(cut)
    spans = _spans(groups, parts)
    ends = np.array([cut[part] for part in parts], dtype=np.int64)
    while (torn := _torn(spans, ends)).any():
        np.minimum.at(ends, spans.part[torn], spans.first[torn])
    return dict(zip(parts, ends.tolist(), strict=True))


def take_whole(groups: Mapping[Part, Groups], cut: Cuts, transaction: int) -> dict[Part, int]:
    """The nearest cut that is nowhere before `cut`, has this transaction, and has every transaction on one side."""
    parts = list(cut)
    ends = np.array([cut[part] for part in parts], dtype=np.int64)
    for index, part in enumerate(parts):
        if part in groups and (own := groups[part].transaction == transaction).any():
            ends[index] = max(ends[index], int(groups[part].last[own][-1]) + 1)
    spans = _spans(groups, parts)
    while (torn := _torn(spans, ends)).any():
        np.maximum.at(ends, spans.part[torn], spans.end[torn])
    return dict(zip(parts, ends.tolist(), strict=True))


def blocked_transaction(groups: Mapping[Part, Groups], wanted: Cuts, lowered: Cuts) -> int:
    """A transaction that no limit like that of `wanted` will ever let through: to be taken whole. 0: there is none.

    It is next in all of its partitions, none of them has moved, and a part of it was wanted. Of several, the oldest.
    """
    front = {part: found for part in groups if (found := _front(groups[part], lowered[part])) is not None}
    stuck: dict[int, int] = {}
    for part, (transaction, append_time) in front.items():
        if transaction and lowered[part] == groups[part].start < wanted[part]:
            stuck[transaction] = append_time
    for transaction in sorted(stuck, key=lambda number: stuck[number]):
        where = [part for part in groups if (groups[part].transaction == transaction).any()]
        if all(front[part][0] == transaction and lowered[part] == groups[part].start for part in where):
            return transaction
    return 0


def next_in_line(groups: Mapping[Part, Groups], cut: Cuts, wanted: Cuts) -> tuple[int, Part | None]:
    """What comes next, where limits let nothing through: a transaction, or a partition with a row that is alone.

    Begins with what was wanted, and goes back to what stands before that in another partition.
    """
    front = {part: found[0] for part in groups if (found := _front(groups[part], cut[part])) is not None}
    transaction = next((front[part] for part in front if cut[part] < wanted[part]), 0)
    met: set[int] = set()
    while transaction and transaction not in met:
        met.add(transaction)
        where = [part for part in front if (groups[part].transaction == transaction).any()]
        earlier = [part for part in where if front[part] != transaction]
        if not earlier:
            break
        if not front[earlier[0]]:
            return 0, earlier[0]
        transaction = front[earlier[0]]
    return transaction, None


def first_row(groups: Groups, cut: int) -> int:
    """Where the first rows at or behind the cut begin. There are some."""
    return int(groups.base[np.searchsorted(groups.last, cut)])


def _front(groups: Groups, cut: int) -> tuple[int, int] | None:
    """Transaction and append time of the first rows at or behind the cut."""
    index = int(np.searchsorted(groups.last, cut))
    if index == len(groups.last):
        return None
    return int(groups.transaction[index]), int(groups.append_time[index])


def _torn(spans: _Spans, ends: Offsets) -> npt.NDArray[np.bool_]:
    """Which spans are of transactions that are on both sides."""
    at = ends[spans.part]
    before = np.zeros(spans.count, dtype=np.bool_)
    behind = np.zeros(spans.count, dtype=np.bool_)
    before[spans.transaction[spans.first < at]] = True
    behind[spans.transaction[spans.end > at]] = True
    torn: npt.NDArray[np.bool_] = (before & behind)[spans.transaction]
    return torn


def _spans(groups: Mapping[Part, Groups], parts: Sequence[Part]) -> _Spans:
    part, number, first, end = [], [], [], []
    for index, key in enumerate(parts):
        found = groups.get(key)
        if found is None:
            continue
        own = np.flatnonzero((found.transaction != 0) & (found.last >= found.start))
        numbers, inverse = np.unique(found.transaction[own], return_inverse=True)
        firsts = np.full(len(numbers), np.iinfo(np.int64).max)
        ends = np.zeros(len(numbers), dtype=np.int64)
        np.minimum.at(firsts, inverse, np.maximum(found.base[own], found.start))
        np.maximum.at(ends, inverse, found.last[own] + 1)
        part.append(np.full(len(numbers), index))
        number.append(numbers)
        first.append(firsts)
        end.append(ends)
    names, transactions = np.unique(_concatenated(number), return_inverse=True)
    return _Spans(_concatenated(part), transactions, _concatenated(first), _concatenated(end), len(names))


def _concatenated(arrays: Sequence[Offsets]) -> Offsets:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
