"""Arrow columns as parameters of SQLite, and the types that they are declared with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.derive.sqlite.parameters import column_parameters, declared_type, null_of_key
from penstock.schema.arrow import parse_schema


def type_of(ddl: str) -> pa.DataType:
    return parse_schema(f"c {ddl}").field(0).type


@pytest.mark.parametrize(
    ("ddl", "declared"),
    [
        ("boolean", "BOOLEAN_INT"),
        ("tinyint", "INTEGER"),
        ("bigint", "INTEGER"),
        ("float", "REAL"),
        ("string", "TEXT"),
        ("binary", "BLOB"),
        ("date", "DATE_TEXT"),
        ("timestamp", "TIMESTAMP_TEXT"),
        ("timestamp_ntz", "TIMESTAMP_NTZ_TEXT"),
        ("decimal(10,2)", "DECIMAL_10_2"),
        ("decimal(38,2)", "DECIMAL_38_2"),
        ("decimal(18,0)", "DECIMAL_18_0"),
        ("decimal(20,0)", "DECIMAL_BLOB_20_0"),
        ("array<int>", "JSON_TEXT"),
        ("map<string,int>", "JSON_TEXT"),
        ("struct<a: int>", "JSON_TEXT"),
    ],
)
def test_every_type_is_declared_as_what_it_is_and_how_it_is_kept(ddl: str, declared: str) -> None:
    assert declared_type(type_of(ddl), in_key=False) == declared


def test_only_keys_of_many_digits_are_text() -> None:
    assert declared_type(type_of("decimal(16,2)"), in_key=True) == "DECIMAL_TEXT_16_2"
    assert declared_type(type_of("decimal(15,2)"), in_key=True) == "DECIMAL_15_2"


@given(st.lists(st.decimals(1 - 10**12, 10**12 - 1, places=3), min_size=1))
def test_decimals_of_15_digits_are_the_nearest_doubles_and_come_back_exactly(values: list[Decimal]) -> None:
    numbers = column_parameters(pa.array(values, pa.decimal128(15, 3)))
    assert numbers == [float(value) for value in values]
    with closing(sqlite3.connect(":memory:")) as connection:
        texts = [connection.execute("select cast(? as text)", (number,)).fetchone()[0] for number in numbers]
    assert [Decimal(text) for text in texts] == values


@given(st.lists(st.decimals(1 - 10**34, 10**34 - 1, places=4), min_size=1))
def test_decimals_of_more_digits_are_near_enough_to_sort_and_to_add(values: list[Decimal]) -> None:
    numbers = column_parameters(pa.array(values, pa.decimal128(38, 4)))
    assert numbers == pytest.approx([float(value) for value in values], rel=1e-14, abs=1e-12)


@given(st.lists(st.none() | st.integers(-(10**37), 10**37)))
def test_whole_decimals_are_exact_as_integers_or_text(values: list[int | None]) -> None:
    given_ = [None if value is None else Decimal(value) for value in values]
    expected = [value if value is None or -(2**63) <= value < 2**63 else str(value) for value in values]
    assert column_parameters(pa.array(given_, pa.decimal128(38, 0))) == expected


def test_a_part_of_a_column_is_only_that_part() -> None:
    whole = pa.array([Decimal("1.5"), None, Decimal("-2.5")], pa.decimal128(20, 1))
    assert column_parameters(whole.slice(1)) == [None, -2.5]
    assert column_parameters(pa.array([True, None, False]).slice(1)) == [None, 0]
    assert column_parameters(pa.array(["a", None, "b"]).slice(1), null=b"") == [b"", "b"]


@pytest.mark.parametrize(
    "ddl", ["boolean", "bigint", "double", "string", "binary", "date", "timestamp", "decimal(20,2)"]
)
def test_columns_of_nothing_and_of_nulls_are_taken(ddl: str) -> None:
    assert column_parameters(pa.array([], type_of(ddl))) == []
    assert column_parameters(pa.array([None, None], type_of(ddl)), null=0) == [0, 0]


def test_what_is_not_a_number_is_named_only_in_keys() -> None:
    values = pa.array([float("nan"), None, 1.0])
    assert column_parameters(values, in_key=True, null=b"") == ["NaN", b"", 1.0]
    assert str(column_parameters(values)) == "[nan, None, 1.0]"


def test_no_value_of_a_key_column_is_what_stands_for_null() -> None:
    assert null_of_key("BLOB") == 0
    assert null_of_key("TEXT") == b""
