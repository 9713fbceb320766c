"""Finding rows in sorted runs: many keys at once, never one at a time. Pure functions on arrays."""

from __future__ import annotations

import numpy as np

from penstock.engine.state.run import Hashes, Positions

NOWHERE = -1


def positions(run_order: Hashes, run_id: Hashes, order: Hashes, id_: Hashes) -> Positions:
    """For each key its position in a run that has each key at most once; NOWHERE where it is not there."""
    found = np.full(len(order), NOWHERE, dtype=np.int64)
    if not len(run_order) or not len(order):
        return found
    candidate = np.searchsorted(run_order, order, side="left")
    open_ = np.flatnonzero(candidate < len(run_order))
    # One round for nearly all; another for each further row with an equal order.
    while len(open_):
        at = candidate[open_]
        same = run_order[at] == order[open_]
        open_, at = open_[same], at[same]
        hit = run_id[at] == id_[open_]
        found[open_[hit]] = at[hit]
        open_ = open_[~hit]
        candidate[open_] += 1
        open_ = open_[candidate[open_] < len(run_order)]
    return found


def ranges(run_order: Hashes, order: Hashes) -> Positions:
    """The positions of all rows of a run whose order is one of these (which are unique)."""
    return expanded(
        np.searchsorted(run_order, order, side="left").astype(np.int64),
        np.searchsorted(run_order, order, side="right").astype(np.int64),
    )


def expanded(starts: Positions, ends: Positions) -> Positions:
    """All numbers of many ranges, one range after the other."""
    lengths = ends - starts
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    steps = np.ones(int(lengths.sum()), dtype=np.int64)
    steps[0] = starts[0]
    firsts = np.cumsum(lengths)[:-1]
    steps[firsts] = starts[1:] - (starts[:-1] + lengths[:-1] - 1)
    return np.cumsum(steps)


def firsts(*columns: np.ndarray) -> np.ndarray:
    """Where in sorted columns a new value begins: a mark per row."""
    rows = len(columns[0])
    marks = np.zeros(rows, dtype=np.bool_)
    if rows:
        marks[0] = True
        for column in columns:
            marks[1:] |= column[1:] != column[:-1]
    return marks
