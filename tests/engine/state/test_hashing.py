"""The order and the id of rows: a function of the values alone, the same for batches and for one row."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.hashing import LONG_BYTES, hash_key, hash_rows
from penstock.errors import RowError

TEXT = st.one_of(st.text(max_size=12), st.text(min_size=28, max_size=70), st.just("x" * (LONG_BYTES + 1)))
BINARY = st.one_of(st.binary(max_size=70), st.just(b"x" * (LONG_BYTES + 9)))
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - columns without a zone
DECIMALS = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(number).scaleb(-6))

SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-2)),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    pa.date32(): st.dates(),
    pa.timestamp("us"): TIMES,
    pa.timestamp("us", "UTC"): TIMES.map(lambda at: at.replace(tzinfo=UTC)),
    pa.null(): st.none(),
}


def with_nulls(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


@st.composite
def columns(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and values of it."""
    kind = draw(st.sampled_from(["simple", "simple", "list", "struct", "map"] if depth else ["simple"]))
    if kind == "simple":
        type_ = draw(st.sampled_from(list(SIMPLE)))
        return type_, with_nulls(SIMPLE[type_])
    type_, values = draw(columns(depth - 1))
    if kind == "list":
        return pa.list_(type_), with_nulls(st.lists(values, max_size=4))
    if kind == "map":
        entries = st.lists(st.tuples(SIMPLE[pa.int32()], values), max_size=3)
        return pa.map_(pa.int32(), type_), with_nulls(entries)
    second_type, second_values = draw(columns(depth - 1))
    struct = st.fixed_dictionaries({"a": values, "b": second_values})
    return pa.struct([("a", type_), ("b", second_type)]), with_nulls(struct)


@given(st.data())
def test_one_row_has_the_hashes_that_it_has_among_others(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(columns(), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(values for _, values in shapes)), max_size=6))
    types = [type_ for type_, _ in shapes]
    arrays = [pa.array([row[number] for row in rows], type_) for number, type_ in enumerate(types)]
    order, id_ = hash_rows(arrays)
    assert [hash_key(row, types) for row in rows] == list(zip(order.tolist(), id_.tolist(), strict=True))


@given(st.data())
def test_a_slice_has_the_hashes_of_its_rows(data: st.DataObject) -> None:
    type_, values = data.draw(columns())
    rows = data.draw(st.lists(values, min_size=1, max_size=8))
    start = data.draw(st.integers(0, len(rows) - 1))
    whole = hash_rows([pa.array(rows, type_)])
    part = hash_rows([pa.array(rows, type_).slice(start, 3)])
    assert part[0].tolist() == whole[0][start : start + 3].tolist()
    assert part[1].tolist() == whole[1][start : start + 3].tolist()


@given(st.data())
def test_rows_agree_in_both_hashes_exactly_where_they_are_equal(data: st.DataObject) -> None:
    type_, values = data.draw(columns())
    rows = data.draw(st.lists(values, min_size=2, max_size=8))
    order, id_ = hash_rows([pa.array(rows, type_)])
    stored = [normal(value) for value in pa.array(rows, type_).to_pylist()]
    for first in range(len(rows)):
        for second in range(first):
            equal = stored[first] == stored[second]
            assert equal == (order[first] == order[second]) == (id_[first] == id_[second])


def normal(value: object) -> object:
    """A value that is equal to another exactly if their hashes should be."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, dict):
        return ("struct", *(normal(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return ("list", *(normal(item) for item in value))
    return value


def different(*columns: pa.Array[Any]) -> bool:
    """Whether all rows have hashes of their own, of either kind."""
    order, id_ = hash_rows(columns)
    return len(set(order.tolist())) == len(order) and len(set(id_.tolist())) == len(id_)


def test_nulls_lengths_and_boundaries_count() -> None:
    assert different(pa.array(["a", None]), pa.array([None, "a"]))
    assert different(pa.array(["ab", "a", ""]), pa.array(["c", "bc", "abc"]))
    assert different(pa.array([None, "", "\0", "\0\0"]))
    assert different(pa.array([None, [], [None], [None, None]], pa.list_(pa.string())))
    assert different(pa.array([[[1], [2]], [[1, 2], []], [[], [1, 2]], [[2], [1]]], pa.list_(pa.list_(pa.int8()))))
    assert different(pa.array([None, {"a": None}], pa.struct([("a", pa.int32())])))
    assert different(pa.array([[1, 2], [2], [1]], pa.list_(pa.int8())), pa.array([[3], [1, 3], [2, 3]]))
    assert different(pa.array([[("a", 1)], [("a", 2)], [("b", 1)], []], pa.map_(pa.string(), pa.int8())))


def test_a_null_in_a_list_of_other_rows_changes_nothing_for_the_rest() -> None:
    kept = hash_rows([pa.array([[1, 2], None, [3]], pa.list_(pa.int64()))])
    alone = hash_rows([pa.array([[3]], pa.list_(pa.int64()))])
    assert kept[0][2] == alone[0][0]


def test_numbers_count_by_their_value_and_not_by_the_width_of_their_type() -> None:
    for wide, narrow in ((pa.int64(), pa.int8()), (pa.float64(), pa.float32()), (pa.string(), pa.large_string())):
        value = "5" if pa.types.is_string(wide) else 5
        assert hash_rows([pa.array([value], wide)]) == hash_rows([pa.array([value], narrow)])


def test_zeros_are_one_value_and_so_are_nans() -> None:
    other_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    order, _ = hash_rows([pa.array(np.concatenate([[0.0, -0.0, math.nan, -math.nan], other_nan]))])
    assert order[0] == order[1]
    assert len(set(order[2:].tolist())) == 1


def test_without_columns_there_is_one_constant() -> None:
    order, id_ = hash_rows([])
    assert (len(order), len(id_)) == (1, 1)
    assert hash_key([], []) == (order[0], id_[0])


def test_the_hashes_are_those_of_stored_runs() -> None:
    """They are part of the format of views: if this fails, the change needs a new format number."""
    types = [pa.int64(), pa.string(), pa.decimal128(38, 2), pa.timestamp("us", "UTC"), pa.list_(pa.float64())]
    row = [7, "a text of more than thirty-two bytes", Decimal("-1.50"), datetime(2026, 1, 31, tzinfo=UTC), [0.5, None]]
    assert hash_key(row, types) == GOLDEN["all"]
    assert hash_key([None], [pa.string()]) == GOLDEN["null"]
    assert hash_key(["x" * 600], [pa.string()]) == GOLDEN["long"]
    assert hash_key([], []) == GOLDEN["none"]


GOLDEN = {
    "all": (2396611175357842084, -3382555720014453122),
    "null": (-8624236930411932528, 7997254034525067127),
    "long": (5378735704198605124, -3465628860092890548),
    "none": (8099000947049456491, 2685821657736338717),
}


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("5", pa.int64()),
        (5.5, pa.int64()),
        (True, pa.int64()),
        (2**31, pa.int32()),
        (1, pa.bool_()),
        (5, pa.string()),
        ("5", pa.binary()),
        (Decimal("0.001"), pa.decimal128(9, 2)),
        (0.1, pa.decimal128(9, 2)),
        (Decimal(10**8), pa.decimal128(9, 2)),
        (datetime(2026, 1, 1, tzinfo=UTC), pa.date32()),
        (date(2026, 1, 1), pa.timestamp("us")),
        ("2026-01-01", pa.date32()),
        ([1], pa.list_(pa.string())),
    ],
)
def test_a_value_of_another_type_is_refused(value: object, type_: pa.DataType) -> None:
    with pytest.raises(RowError, match="a value of type"):
        hash_key([value], [type_])


def test_a_zone_is_not_part_of_an_instant() -> None:
    type_ = pa.timestamp("us", "UTC")
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert hash_key([at], [type_]) == hash_key([at.astimezone(timezone(timedelta(hours=5)))], [type_])
    assert hash_key([at], [type_]) == hash_key([at.replace(tzinfo=None)], [type_])


def test_a_whole_number_may_stand_for_a_decimal_or_a_float() -> None:
    assert hash_key([2], [pa.decimal128(9, 2)]) == hash_key([Decimal("2.00")], [pa.decimal128(9, 2)])
    assert hash_key([2], [pa.float64()]) == hash_key([2.0], [pa.float64()])
