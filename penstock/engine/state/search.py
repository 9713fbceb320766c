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

NOWHERE = -1


def lower_bounds(run_order: Hashes, run_id: Hashes, order: Hashes, id_: Hashes) -> Positions:
    """For each key the position of the first row of a run that does not come before it."""
    low: Positions = np.searchsorted(run_order, order, side="left").astype(np.int64, copy=False)
    at = np.minimum(low, len(run_order) - 1)
    # Keys with an order that more rows have: rare for hashes of keys, the rule for the rows of one group.
    open_ = np.flatnonzero((run_order[at] == order) & (run_id[at] < id_)) if len(run_order) else low[:0]
    if len(open_):
        low[open_] = _bisected(run_order, run_id, order[open_], id_[open_], low[open_] + 1)
    return low


def _bisected(run_order: Hashes, run_id: Hashes, order: Hashes, id_: Hashes, low: Positions) -> Positions:
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


def by_key(order: Hashes, id_: Hashes) -> Positions | None:
    """How to sort rows by order and id; None where they are sorted already."""
    tied, falls = order[1:] == order[:-1], order[1:] < order[:-1]
    if not falls.any() and not (tied & (id_[1:] < id_[:-1])).any():
        return None
    at = np.argsort(order, kind="stable")
    order, id_ = order[at], id_[at]
    tied = order[1:] == order[:-1]
    if tied.any():
        # Only rows that share their order are sorted once more: few, where orders are hashes of keys.
        rows = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
        at[rows] = at[rows[np.lexsort((id_[rows], order[rows]))]]
    return at


def interleaved(rows: int, at: Positions) -> Positions:
    """How to take rows from a sorted run and from sorted rows behind it, each of which belongs before the row `at`."""
    places = at + np.arange(len(at))
    source = np.empty(rows + len(at), dtype=np.int64)
    old = np.ones(len(source), dtype=np.bool_)
    old[places] = False
    source[places] = np.arange(rows, len(source))
    source[old] = np.arange(rows)
    return source


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
