"""Arrays, structs and maps as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.derive.sqlite.nested_json import json_texts
from penstock.schema.arrow import parse_schema


def column(type_: str, values: list[object]) -> pa.Array:  # type: ignore[type-arg]
    return pa.array(values, parse_schema(f"c {type_}").field(0).type)


def documents(type_: str, values: list[object]) -> list[object]:
    return [None if text is None else json.loads(text) for text in json_texts(column(type_, values)).tolist()]


@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9) | st.just(2**60), max_size=3), max_size=5), st.data()
)
def test_lists_come_back_also_from_a_part_of_a_column(values: list[object], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    part = column("array<bigint>", values).slice(start)
    assert [None if text is None else json.loads(text) for text in json_texts(part).tolist()] == values[start:]


def test_structs_in_lists_in_maps_come_back() -> None:
    values: list[object] = [{"x": [{"a": 1, "b": None}, None]}, None, {}, {"y": None, "z": []}]
    assert documents("map<string, array<struct<a: int, b: string>>>", values) == values


def test_a_struct_that_is_null_is_not_one_of_nulls() -> None:
    assert documents("struct<a: int>", [None, {"a": None}]) == [None, {"a": None}]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("timestamp", datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31 12:00:00"),
        ("date", date(2026, 1, 31), "2026-01-31"),
        ("decimal(10,2)", Decimal("1.50"), "1.50"),
        ("binary", b"\x00\xff", "AP8="),
        ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"),
        ("double", 0.1, 0.1),
        ("double", -0.0, 0.0),
        ("boolean", True, True),
        ("string", 'ü"\n', 'ü"\n'),
    ],
)
def test_leaves_are_what_json_has_for_them(type_: str, value: object, expected: object) -> None:
    (found,) = documents(f"array<{type_}>", [[value, None]])
    assert repr(found) == repr([expected, None])


def test_keys_of_maps_become_text() -> None:
    assert documents("map<bigint, boolean>", [[(1, True)]]) == [{"1": True}]
    assert documents("map<date, int>", [[(date(2026, 1, 31), 1)]]) == [{"2026-01-31": 1}]
