"""Sorted rows in segments, one for each group: numbering them, running maxima, searching inside them. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.engine.state.rows import Numbers
from penstock.engine.state.search import firsts, lower_bounds


def segments(*columns: npt.NDArray[np.generic]) -> Numbers:
    """The number of each row's segment: 0, 0, 1, 1, 1, 2, ... where the sorted columns change."""
    return np.cumsum(firsts(*columns)) - 1


def running_maximum(segment: Numbers, values: Numbers) -> Numbers:
    """For each row the largest value in its segment up to it."""
    highest, reach = values.copy(), 1
    while (inside := segment[reach:] == segment[:-reach]).any():
        # Each row knows the largest of the last `reach` rows, and now of twice as many.
        higher = np.maximum(highest[reach:], highest[:-reach])
        highest[reach:][inside] = higher[inside]
        reach *= 2
    return highest


def find(
    segment: Numbers, values: Numbers, wanted_segment: Numbers, wanted: Numbers, side: Literal["left", "right"]
) -> Numbers:
    """Like `searchsorted` in rows sorted by segment and value, each search in a segment of its own."""
    return lower_bounds(segment, values, wanted_segment, wanted + 1 if side == "right" else wanted)


def among(columns: Sequence[Numbers], others: Sequence[Numbers]) -> npt.NDArray[np.bool_]:
    """Which rows of some columns stand in the other columns as well."""
    both = [np.concatenate(pair) for pair in zip(columns, others, strict=True)]
    order = np.lexsort(both)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = segments(*(column[order] for column in both))
    known = np.zeros(len(order), dtype=np.bool_)
    known[number[len(columns[0]) :]] = True
    return known[number[: len(columns[0])]]
