"""What each key of an epoch comes down to."""

from __future__ import annotations

from datetime import UTC

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.derive.sqlite.sorting import last_per_key, order_codes
from penstock.schema.arrow import parse_schema

KEYS = st.lists(st.tuples(st.sampled_from([None, "", "a", "b"]), st.integers(0, 2), st.sampled_from([-2, -1, 1, 2])))


@given(KEYS)
def test_each_key_is_replaced_by_its_last_row_or_deleted(rows: list[tuple[str | None, int, int]]) -> None:
    names = pa.array([row[0] for row in rows], pa.string())
    numbers = pa.array([row[1] for row in rows], pa.int64())
    weights = np.array([row[2] for row in rows], np.int64)
    deleted, replaced = last_per_key([names, numbers], weights) if rows else (np.array([]), np.array([]))
    expected = {(name, number): position for position, (name, number, weight) in enumerate(rows) if weight > 0}
    assert {rows[position][:2]: position for position in replaced.tolist()} == expected
    assert {rows[position][:2] for position in deleted.tolist()} == {row[:2] for row in rows} - set(expected)
    for chosen in (deleted, replaced):
        keys = [
            (rows[position][0] is not None, rows[position][0] or "", rows[position][1]) for position in chosen.tolist()
        ]
        assert keys == sorted(keys)
        assert len(chosen) == len(set(chosen.tolist()))


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("bigint", st.integers(-(2**63), 2**63 - 1)),
        ("boolean", st.booleans()),
        ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=2)),
        ("binary", st.binary(max_size=2)),
        ("double", st.floats(allow_nan=False)),
        ("date", st.dates()),
        ("timestamp", st.datetimes(timezones=st.just(UTC))),
        ("decimal(38,2)", st.decimals(-(10**30), 10**30, places=2)),
    ],
)
@given(data=st.data())
def test_codes_are_in_the_order_of_their_values(
    ddl: str, values: st.SearchStrategy[object], data: st.DataObject
) -> None:
    several = data.draw(st.lists(st.none() | values, max_size=6))
    codes = order_codes(pa.array(several, parse_schema(f"c {ddl}").field(0).type)).tolist()
    for left, left_code in zip(several, codes, strict=True):
        for right, right_code in zip(several, codes, strict=True):
            assert (left == right) == (left_code == right_code)
            if left is None or right is None:
                assert (left_code < right_code) == (left is None and right is not None)
            else:
                assert (left < right) == (left_code < right_code)  # type: ignore[operator]


def test_keys_that_are_not_numbers_are_equal_and_zeros_too() -> None:
    nan = float("nan")
    first_nan, second_nan, zero, minus_zero = order_codes(pa.array([nan, nan, 0.0, -0.0])).tolist()
    assert first_nan == second_nan
    assert zero == minus_zero


def test_arrays_and_structs_can_be_keys() -> None:
    codes = order_codes(pa.array([[1, 2], None, [1], [1, 2]], pa.list_(pa.int64()))).tolist()
    assert (codes[0] == codes[3], len(set(codes))) == (True, 3)
