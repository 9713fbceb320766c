"""Finding rows in sorted runs: many keys at once, never one at a time. Pure functions on arrays.

A key is an order and an id, and runs are sorted by both. Looking for keys that are sorted too is several times faster
than for others, since neighbours are found in the same part of memory.
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
    """For each key the position of the first row of a run that does not come before it."""
    low: Positions = np.searchsorted(run_order, order, side="left").astype(np.int64, copy=False)
    at = np.minimum(low, len(run_order) - 1)
    # Keys with an order that more rows have: rare for hashes of keys, the rule for the rows of one group.
    open_ = np.flatnonzero((run_order[at] == order) & (run_id[at] < id_)) if len(run_order) else low[:0]
    if len(open_):
        low[open_] = _bisected(run_order, run_id, order[open_], id_[open_], low[open_] + 1)
    return low


def _bisected(run_order: Ordered, run_id: Ordered, order: Ordered, id_: Ordered, low: Positions) -> Positions:
    """The same by id among the rows with one order, of which the first is before `low`."""
    high: Positions = np.searchsorted(run_order, order, side="right").astype(np.int64, copy=False)
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        before = run_id[np.minimum(middle, len(run_id) - 1)] < id_
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low


def positions(run_order: Hashes, run_id: Hashes, order: Hashes, id_: Hashes) -> Positions:
    """For each key its position in a run that has each key at most once; NOWHERE where it is not there."""
    if not len(run_order):
        return np.full(len(order), NOWHERE, dtype=np.int64)
    found = lower_bounds(run_order, run_id, order, id_)
    at = np.minimum(found, len(run_order) - 1)
    found[(run_order[at] != order) | (run_id[at] != id_)] = NOWHERE
    return found


def in_order(order: Ordered, id_: Ordered) -> bool:
    """Whether rows are sorted by order and id."""
    falls, tied = order[1:] < order[:-1], order[1:] == order[:-1]
    return not falls.any() and not (tied & (id_[1:] < id_[:-1])).any()


def by_key(order: Ordered, *less: Ordered) -> Positions:
    """How to sort rows by order, and rows of one order by other columns, the most important first.

    Rows that agree in all of them stay in their turn. Only those that still agree are sorted once more.
    """
    at = np.argsort(order, kind="stable")
    begins = firsts(order[at])
    for column in less:
        tied = ~begins | ~np.append(begins[1:], True)[: len(begins)]
        if not tied.any():
            break
        places = np.flatnonzero(tied)
        group, values = np.cumsum(begins[places]) - 1, column[at[places]]
        differs = (values[1:] != values[:-1]) & (group[1:] == group[:-1])
        if differs.any():  # mostly one column less tells rows apart: they share their key too
            turn = _by_group(group, values)
            at[places] = at[places[turn]]
            begins[places] = firsts(group, values[turn])
    return at


def _by_group(group: Positions, values: Ordered) -> Positions:
    """How to sort rows by value within their groups, which stand one after the other."""
    wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
    spread = (wide - wide.min()).view(np.uint64)
    free = 64 - int(group[-1]).bit_length()
    excess = max(0, int(spread.max()).bit_length() - free)
    # One number holds both, and sorting by it is far quicker. What has no place in it matters next to never.
    both = spread >> np.uint64(excess)
    if free < 64:
        both |= group.view(np.uint64) << np.uint64(free)
    turn = np.argsort(both, kind="stable")
    return turn if not excess or in_order(group, values[turn]) else np.lexsort([values, group])


def interleaved(older: Positions, newer: Positions, at: Positions) -> Positions:
    """Older and newer positions in one order: each of the newer stands before the older one at `at`, which rises."""
    places = at + np.arange(len(at))
    is_older = np.ones(len(older) + len(newer), dtype=np.bool_)
    is_older[places] = False
    both = np.empty(len(is_older), dtype=np.int64)
    both[places] = newer
    both[is_older] = older
    return both


def ranges(run_order: Hashes, order: Hashes) -> Positions:
    """The positions of all rows of a run whose order is one of these (which are unique)."""
    return expanded(
        np.searchsorted(run_order, order, side="left").astype(np.int64, copy=False),
        np.searchsorted(run_order, order, side="right").astype(np.int64, copy=False),
    )


def expanded(starts: Positions, ends: Positions) -> Positions:
    """All numbers of many ranges, one range after the other."""
    lengths = ends - starts
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def firsts(*columns: npt.NDArray[np.generic]) -> Mask:
    """Where in sorted columns a new value begins: a mark per row."""
    rows = len(columns[0])
    marks = np.zeros(rows, dtype=np.bool_)
    if rows:
        marks[0] = True
        for column in columns:
            marks[1:] |= column[1:] != column[:-1]
    return marks


def distinct(values: Hashes) -> Hashes:
    """Each of some sorted values once."""
    return values[firsts(values)]
