"""Finding rows in sorted runs: many keys at once, never one at a time. Pure functions on arrays.

A key is an order and an id, and runs are sorted by both. Sorted keys are found several times faster than others, since
neighbours are in the same part of memory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Ordered = npt.NDArray[np.uint64] | npt.NDArray[np.int64]

NOWHERE = -1


def lower_bounds(run_order: Ordered, run_id: Ordered, order: Ordered, id_: Ordered) -> Positions:
    """For each key the position of the first row of a run that is not before it."""
    low: Positions = np.searchsorted(run_order, order, side="left").astype(np.int64, copy=False)
    at = np.minimum(low, len(run_order) - 1)
    # Keys whose order several rows share: rare for hashes of keys, normal for the rows of a group.
    open_ = np.flatnonzero((run_order[at] == order) & (run_id[at] < id_)) if len(run_order) else low[:0]
    if len(open_):
        low[open_] = _bisect_by_id(run_order, run_id, order[open_], id_[open_], low[open_] + 1)
    return low


def _bisect_by_id(run_order: Ordered, run_id: Ordered, order: Ordered, id_: Ordered, low: Positions) -> Positions:
    """The same, by id among the rows of one order, of which the first is before `low`."""
    high: Positions = np.searchsorted(run_order, order, side="right").astype(np.int64, copy=False)
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        before = run_id[np.minimum(middle, len(run_id) - 1)] < id_
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low


def positions(run_order: Hashes, run_id: Hashes, order: Hashes, id_: Hashes) -> Positions:
    """For each key its position in a run that has each key at most once; NOWHERE if the run does not have it."""
    if not len(run_order):
        return np.full(len(order), NOWHERE, dtype=np.int64)
    result = lower_bounds(run_order, run_id, order, id_)
    at = np.minimum(result, len(run_order) - 1)
    result[(run_order[at] != order) | (run_id[at] != id_)] = NOWHERE
    return result


def is_sorted(order: Ordered, id_: Ordered) -> bool:
    """Whether rows are sorted by order and id."""
    falls, is_tied = order[1:] < order[:-1], order[1:] == order[:-1]
    return not falls.any() and not (is_tied & (id_[1:] < id_[:-1])).any()


def argsort_by_key(order: Ordered, *further: Ordered) -> Positions:
    """The permutation that sorts rows by order, and rows of the same order by further columns in turn.

    The sort is stable. Each further column is only looked at for rows that are still tied.
    """
    at = np.argsort(order, kind="stable")
    begins = firsts(order[at])
    for column in further:
        is_tied = ~begins | ~lasts(begins)
        if not is_tied.any():
            break
        tied_at = np.flatnonzero(is_tied)
        group, values = np.cumsum(begins[tied_at]) - 1, column[at[tied_at]]
        differs = (values[1:] != values[:-1]) & (group[1:] == group[:-1])
        if differs.any():  # often tied rows share this column too, being of one key
            permutation = _argsort_in_groups(group, values)
            at[tied_at] = at[tied_at[permutation]]
            begins[tied_at] = firsts(group, values[permutation])
    return at


def _argsort_in_groups(group: Positions, values: Ordered) -> Positions:
    """The permutation that sorts rows by value within their groups, which are contiguous."""
    wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
    distances = (wide - wide.min()).view(np.uint64)
    free = 64 - int(group[-1]).bit_length()
    excess = max(0, int(distances.max()).bit_length() - free)
    # Group and value in one number, which sorts far faster. The low bits that do not fit hardly ever matter.
    sort_keys = distances >> np.uint64(excess)
    if free < 64:
        sort_keys |= group.view(np.uint64) << np.uint64(free)
    permutation = np.argsort(sort_keys, kind="stable")
    return permutation if not excess or is_sorted(group, values[permutation]) else np.lexsort([values, group])


def interleave(older: Positions, newer: Positions, at: Positions) -> Positions:
    """Merge two lists of positions: each newer one goes before the older one at index `at`, which is ascending."""
    newer_at = at + np.arange(len(at))
    is_older = np.ones(len(older) + len(newer), dtype=np.bool_)
    is_older[newer_at] = False
    result = np.empty(len(is_older), dtype=np.int64)
    result[newer_at] = newer
    result[is_older] = older
    return result


def positions_of_orders(run_order: Hashes, order: Hashes) -> Positions:
    """The positions of all rows of a run whose order is one of these, which must be unique."""
    return expand_ranges(
        np.searchsorted(run_order, order, side="left").astype(np.int64, copy=False),
        np.searchsorted(run_order, order, side="right").astype(np.int64, copy=False),
    )


def expand_ranges(starts: Positions, ends: Positions) -> Positions:
    """All numbers of many ranges, one range after the other."""
    lengths = ends - starts
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def firsts(*columns: npt.NDArray[np.generic]) -> Mask:
    """Which rows of sorted columns begin a new value."""
    rows = len(columns[0])
    marks = np.zeros(rows, dtype=np.bool_)
    if rows:
        marks[0] = True
        for column in columns:
            marks[1:] |= column[1:] != column[:-1]
    return marks


def lasts(begins: Mask) -> Mask:
    """Which rows are the last before a new value begins, given which rows begin one."""
    return np.append(begins[1:], True)[: len(begins)]


def unique(values: Hashes) -> Hashes:
    """The different values among sorted ones."""
    return values[firsts(values)]
