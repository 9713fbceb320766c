"""Sorted rows in segments, one for each group: numbering them, running maxima, searching inside them. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.engine.state.rows import Numbers
from penstock.engine.state.search import firsts


def segments(*columns: npt.NDArray[np.generic]) -> Numbers:
    """The number of each row's segment: 0, 0, 1, 1, 1, 2, ... where the sorted columns change."""
    return np.cumsum(firsts(*columns)) - 1


def running_maximum(segment: Numbers, values: Numbers) -> Numbers:
    """For each row the largest value in its segment up to it."""
    # Ranks of values are small numbers, so that a segment's can be lifted above those of all segments before it.
    distinct, rank = np.unique(values, return_inverse=True)
    lifted = segment * len(distinct)
    highest: Numbers = distinct[np.maximum.accumulate(lifted + rank) - lifted]
    return highest


def find(
    segment: Numbers, values: Numbers, wanted_segment: Numbers, wanted: Numbers, side: Literal["left", "right"]
) -> Numbers:
    """Like `searchsorted` in rows sorted by segment and value, each search in a segment of its own."""
    distinct = np.unique(values)
    places = len(distinct) + 1
    rank = np.searchsorted(distinct, values)
    # A wanted value stands before the first that is not less than it, or behind all that are not greater.
    wanted_rank = np.searchsorted(distinct, wanted, side=side)
    found: Numbers = np.searchsorted(segment * places + rank, wanted_segment * places + wanted_rank, side="left")
    return found


def among(columns: Sequence[Numbers], others: Sequence[Numbers]) -> npt.NDArray[np.bool_]:
    """Which rows of some columns stand in the other columns as well."""
    both = [np.concatenate(pair) for pair in zip(columns, others, strict=True)]
    order = np.lexsort(both)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = segments(*(column[order] for column in both))
    known = np.zeros(len(order), dtype=np.bool_)
    known[number[len(columns[0]) :]] = True
    return known[number[: len(columns[0])]]
