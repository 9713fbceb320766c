"""Sorted rows in segments, against going through them one by one."""

from __future__ import annotations

from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.sorted_groups import group_numbers, rows_in, running_maximum, search_in_groups
from penstock.engine.state.rows import Numbers

values = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**62), 2**62]))
rows = st.lists(st.tuples(st.integers(0, 3), values), max_size=20).map(sorted)


def numbers(values: list[int]) -> Numbers:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))).map(sorted))
def test_segments_are_numbered_from_zero(rows: list[tuple[int, int]]) -> None:
    found = group_numbers(numbers([value for value, _ in rows]), numbers([second for _, second in rows])).tolist()
    distinct = sorted(set(rows))
    assert found == [distinct.index(row) for row in rows]


@given(st.lists(st.lists(values, min_size=1, max_size=5), max_size=5))
def test_the_running_maximum_begins_again_in_each_segment(parts: list[list[int]]) -> None:
    segment = numbers([number for number, part in enumerate(parts) for _ in part])
    found = running_maximum(segment, numbers([value for part in parts for value in part])).tolist()
    assert found == [max(part[: at + 1]) for part in parts for at in range(len(part))]


@given(rows, st.lists(st.tuples(st.integers(0, 4), values), max_size=8), st.sampled_from(["left", "right"]))
def test_values_are_found_in_their_own_segment(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]], side: Literal["left", "right"]
) -> None:
    found = search_in_groups(
        numbers([segment for segment, _ in rows]),
        numbers([value for _, value in rows]),
        numbers([segment for segment, _ in wanted]),
        numbers([value for _, value in wanted]),
        side,
    ).tolist()
    before = (lambda row, value: row < value) if side == "left" else (lambda row, value: row <= value)
    assert found == [sum(before(row, value) for row in rows) for value in wanted]


@given(st.lists(st.tuples(values, values)), st.lists(st.tuples(values, values)))
def test_rows_are_found_among_others(own_rows: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    def columns(rows: list[tuple[int, int]]) -> list[Numbers]:
        return [numbers([row[at] for row in rows]) for at in (0, 1)]

    assert rows_in(columns(own_rows), columns(others)).tolist() == [row in others for row in own_rows]
