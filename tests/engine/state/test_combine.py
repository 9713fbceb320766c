"""How values of one key become one."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.arrangement import Adding
from penstock.engine.state.combine import Rule, combine_columns, fold_groups, interleave_rows
from penstock.errors import RowError

INTEGERS = st.one_of(st.none(), st.integers(-(2**62), 2**62 - 1))
DOUBLES = st.one_of(st.none(), st.floats(width=64))


def combined(rule: Rule, type_: pa.DataType, left: Any, right: Any) -> Any:
    return combine_columns(rule, pa.array([left], type_), pa.array([right], type_), "x")[0].as_py()


@given(INTEGERS, INTEGERS)
def test_nulls_are_left_out_of_sums(left: int | None, right: int | None) -> None:
    present = [value for value in (left, right) if value is not None]
    assert combined("sum", pa.int64(), left, right) == (sum(present) if present else None)


@given(DOUBLES, DOUBLES, st.sampled_from(["min", "max"]))
def test_nan_is_greater_than_every_number(left: float | None, right: float | None, rule: Rule) -> None:
    present = [value for value in (left, right) if value is not None]
    best = (min if rule == "min" else max)(present, key=lambda value: (math.isnan(value), value), default=None)
    found = combined(rule, pa.float64(), left, right)
    assert found == best or (best is not None and math.isnan(best) and math.isnan(found))


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, math.nan])), min_size=3, max_size=3))
def test_it_does_not_matter_which_extremes_are_put_together_first(values: list[float | None]) -> None:
    first, second, third = values
    for rule in ("min", "max"):
        left = combined(rule, pa.float64(), combined(rule, pa.float64(), first, second), third)
        right = combined(rule, pa.float64(), first, combined(rule, pa.float64(), second, third))
        assert repr(left) == repr(right)


def test_the_same_is_what_the_newer_row_says() -> None:
    assert combined("same", pa.list_(pa.int64()), [1], [2]) == [2]


@given(st.lists(st.tuples(st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4)), max_size=5))
def test_bits_are_joined_byte_by_byte_wherever_the_columns_begin(pairs: list[tuple[bytes, bytes]]) -> None:
    older = pa.array([b"first", *(left for left, _ in pairs)], pa.binary()).slice(1)
    newer = pa.array([b"", b"xyz", *(right for _, right in pairs)], pa.binary()).slice(2)
    both = [list(zip(left, right, strict=True)) for left, right in pairs]
    assert combine_columns("or", older, newer, "x").to_pylist() == [bytes(a | b for a, b in pair) for pair in both]
    assert combine_columns("and", older, newer, "x").to_pylist() == [bytes(a & b for a, b in pair) for pair in both]


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimals_are_added_to_the_last_of_38_digits_or_refused(left: int, right: int) -> None:
    if abs(left + right) < 10**38:
        assert int(combined("sum", pa.decimal128(38, 0), Decimal(left), Decimal(right))) == left + right
    else:
        with pytest.raises(RowError, match=r"x: the sum is too large for its type decimal128\(38, 0\)"):
            combined("sum", pa.decimal128(38, 0), Decimal(left), Decimal(right))


def test_the_values_that_were_too_large_are_named() -> None:
    left, right = pa.array([1, None, 2**63 - 1]), pa.array([1, 5, 1])
    with pytest.raises(RowError, match=r"^sum\(x\): .* int64; 9223372036854775807 and 1 were to be added") as caught:
        combine_columns("sum", left, right, "sum(x)")
    assert caught.value.hint is not None


def test_the_least_number_of_all_can_be_reached() -> None:
    assert combined("sum", pa.int64(), -(2**63) + 1, -1) == -(2**63)


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=9), max_size=6))
def test_stretches_of_rows_become_one_row_each(stretches: list[list[int | None]]) -> None:
    values = [value for stretch in stretches for value in stretch]
    begins = np.array([n == 0 for stretch in stretches for n in range(len(stretch))], dtype=np.bool_)
    number = [n for n, stretch in enumerate(stretches) for _ in stretch]
    rows = pa.RecordBatch.from_pydict(
        {name: pa.array(values, pa.int64()) for name in ("sum", "min", "max")} | {"same": pa.array(number, pa.int64())}
    )
    found = fold_groups(rows, begins, Adding({"sum": "sum", "min": "min", "max": "max"}).combine_rows).to_pylist()
    assert found == [
        {
            "sum": reduce(lambda total, value: (total or 0) + value, present, None),
            "min": min(present, default=None),
            "max": max(present, default=None),
            "same": n,
        }
        for n, stretch in enumerate(stretches)
        for present in [[value for value in stretch if value is not None]]
    ]


@given(st.lists(st.booleans(), max_size=20))
def test_rows_of_two_batches_come_back_in_one_order(first: list[bool]) -> None:
    def batch(wanted: bool) -> pa.RecordBatch:
        at = [place for place, which in enumerate(first) if which == wanted]
        return pa.RecordBatch.from_pydict({"at": pa.array(at, pa.int64())})

    joined = interleave_rows(np.array(first, dtype=np.bool_), batch(True), batch(False))
    assert joined.column("at").to_pylist() == list(range(len(first)))
