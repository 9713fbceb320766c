"""Rows sorted by group: numbering the groups, running maxima in them, searching in them. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.engine.state.rows import Numbers
from penstock.engine.state.search import firsts, lower_bounds


def group_numbers(*columns: npt.NDArray[np.generic]) -> Numbers:
    """For each row the number of its group: 0, 0, 1, 1, 1, 2, ... A group begins where the sorted columns change."""
    return np.cumsum(firsts(*columns)) - 1


def running_maximum(group: Numbers, values: Numbers) -> Numbers:
    """For each row the largest value in its group so far."""
    highest, reach = values.copy(), 1
    while (inside := group[reach:] == group[:-reach]).any():
        # Each row has the largest of the last `reach` rows; this makes it twice as many.
        higher = np.maximum(highest[reach:], highest[:-reach])
        highest[reach:][inside] = higher[inside]
        reach *= 2
    return highest


def search_in_groups(
    group: Numbers, values: Numbers, in_group: Numbers, value: Numbers, side: Literal["left", "right"]
) -> Numbers:
    """Like `searchsorted`, in rows sorted by group and value; each value is searched in its own group."""
    return lower_bounds(group, values, in_group, value + 1 if side == "right" else value)


def rows_in(columns: Sequence[Numbers], others: Sequence[Numbers]) -> npt.NDArray[np.bool_]:
    """Which rows of these columns are also rows of the other columns."""
    all_columns = [np.concatenate(pair) for pair in zip(columns, others, strict=True)]
    order = np.lexsort(all_columns)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = group_numbers(*(column[order] for column in all_columns))
    in_others = np.zeros(len(order), dtype=np.bool_)
    in_others[number[len(columns[0]) :]] = True
    return in_others[number[: len(columns[0])]]
