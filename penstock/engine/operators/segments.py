"""Sorted rows in segments, one for each group: numbering them, running maxima, searching inside them. Pure numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.engine.state.search import firsts

Numbers = npt.NDArray[np.int64]


def segments(*columns: np.ndarray) -> Numbers:
    """The number of each row's segment: 0, 0, 1, 1, 1, 2, ... where the sorted columns change."""
    return np.cumsum(firsts(*columns)) - 1


def running_maximum(segment: Numbers, values: Numbers) -> Numbers:
    """For each row the largest value in its segment up to it."""
    distinct, rank = np.unique(values, return_inverse=True)
    ahead = segment * len(distinct) + rank
    return distinct[np.maximum.accumulate(ahead) - segment * len(distinct)] if len(values) else values


def find(segment: Numbers, values: Numbers, wanted_segment: Numbers, wanted: Numbers, side: str) -> Numbers:
    """Like `searchsorted` in rows sorted by segment and value, each search in a segment of its own."""
    distinct = np.unique(values)
    places = len(distinct) + 1
    rank = np.searchsorted(distinct, values)
    # A wanted value stands before the first that is not less than it, or behind all that are not greater.
    wanted_rank = np.searchsorted(distinct, wanted, side="left" if side == "left" else "right")
    return np.searchsorted(segment * places + rank, wanted_segment * places + wanted_rank, side="left").astype(np.int64)
