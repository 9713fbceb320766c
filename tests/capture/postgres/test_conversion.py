# ruff: noqa: DTZ901, E501
from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.postgres.array_text import parse_array, split_arrays
from penstock.capture.postgres.conversion import convert_text
from penstock.capture.postgres.types import ColumnLayout, PostgresType, column_layout
from penstock.errors import DeclarationError

BOOL, BYTEA, INT8, INT2, INT4, OID = (
    PostgresType(oid, name)
    for oid, name in [(16, "bool"), (17, "bytea"), (20, "int8"), (21, "int2"), (23, "int4"), (26, "oid")]
)
TEXT, FLOAT4, FLOAT8 = PostgresType(25, "text"), PostgresType(700, "float4"), PostgresType(701, "float8")
DATE, TIMESTAMP, TIMESTAMPTZ = (
    PostgresType(1082, "date"),
    PostgresType(1114, "timestamp"),
    PostgresType(1184, "timestamptz"),
)


def numeric(precision: int, scale: int) -> PostgresType:
    return PostgresType(1700, "numeric", (precision << 16 | scale & 0x7FF) + 4)


def array_of(item: PostgresType, delimiter: str = ",") -> PostgresType:
    return PostgresType(9999, f"_{item.name}", -1, "array", item, delimiter)


def values(type_: PostgresType, *texts: str | None, as_text: bool = False) -> list[object]:
    column = column_layout("c", type_, as_text=as_text)
    binary = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    converted = convert_text(binary, column, table="shop.orders")
    converted.validate(full=True)
    assert converted.type == column.arrow
    sliced = convert_text(pa.array(["\\xff", *texts, "0"], pa.string())[1:-1], column, table="shop.orders")
    assert str(sliced) == str(converted)
    return list(converted.to_pylist())


UTC = dt.UTC


@pytest.mark.parametrize(
    ("type_", "texts", "expected"),
    [
        (BOOL, ["t", "f", None], [True, False, None]),
        (INT2, ["-32768", "32767"], [-32768, 32767]),
        (INT4, ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
        (INT8, ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
        (OID, ["4294967295"], [2**32 - 1]),
        (FLOAT4, ["3.4028235e+38", "1e-45"], [3.4028234663852886e38, 1.401298464324817e-45]),
        (FLOAT8, ["1.7976931348623157e+308", "5e-324", "Infinity", "-Infinity"], [1.7976931348623157e308, 5e-324, math.inf, -math.inf]),
        (numeric(10, 2), ["99999999.99", "-99999999.99", "0.00"], [Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.00")]),
        (numeric(38, 0), ["9" * 38], [Decimal("9" * 38)]),
        (numeric(38, 38), ["0." + "9" * 38], [Decimal("0." + "9" * 38)]),
        (numeric(39, 0), ["9" * 39, "NaN"], ["9" * 39, "NaN"]),
        (numeric(5, -2), ["1234500"], ["1234500"]),
        (numeric(2, 3), ["0.012"], ["0.012"]),
        (PostgresType(1700, "numeric"), ["Infinity", "1e3"], ["Infinity", "1e3"]),
        (TEXT, ["", "NULL", "\\x", "ü"], ["", "NULL", "\\x", "ü"]),
        (BYTEA, ["\\x", "\\x00ff", None, "\\xdeadbeef"], [b"", b"\x00\xff", None, b"\xde\xad\xbe\xef"]),
        (DATE, ["0001-01-01", "9999-12-31", None], [dt.date.min, dt.date.max, None]),
        (DATE, ["-infinity", "infinity", "1970-01-01"], [dt.date.min, dt.date.max, dt.date(1970, 1, 1)]),
        (TIMESTAMP, ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"], [dt.datetime.min, dt.datetime.max]),
        (TIMESTAMP, ["-infinity", "infinity"], [dt.datetime.min, dt.datetime.max]),
        (TIMESTAMPTZ, ["2024-02-29 12:00:00.5+00", "infinity"], [dt.datetime(2024, 2, 29, 12, 0, 0, 500_000, UTC), dt.datetime.max.replace(tzinfo=UTC)]),
        (array_of(INT4), ["{1,NULL,-3}", "{}", None, "{NULL}"], [[1, None, -3], [], None, [None]]),
        (array_of(BOOL), ["{t,f,NULL}"], [[True, False, None]]),
        (array_of(numeric(4, 1)), ["{1.0,NULL}"], [[Decimal("1.0"), None]]),
        (array_of(BYTEA), ['{"\\\\x","\\\\x00ff",NULL}'], [[b"", b"\x00\xff", None]]),
        (array_of(TIMESTAMP), ['{"2024-01-01 00:00:00",infinity}'], [[dt.datetime(2024, 1, 1), dt.datetime.max]]),  # noqa: DTZ001
        (array_of(TEXT), ["{a,b}", "{}", None], [["a", "b"], [], None]),
        (array_of(TEXT), ['{"","NULL",NULL,null,"a,b","{x}","\\"q\\\\"}'], [["", "NULL", None, "null", "a,b", "{x}", '"q\\']]),
        (array_of(PostgresType(603, "box"), ";"), ["{(1,1),(0,0);(2,2),(1,1)}"], [["(1,1),(0,0)", "(2,2),(1,1)"]]),
        (PostgresType(7, "price", -1, "domain", numeric(6, 2)), ["1.50"], [Decimal("1.50")]),
        (PostgresType(8, "prices", -1, "domain", array_of(numeric(6, 2))), ["{1.50}"], [[Decimal("1.50")]]),
    ],
    ids=str,
)  # fmt: skip
def test_texts_become_values(type_: PostgresType, texts: list[str | None], expected: list[object]) -> None:
    assert values(type_, *texts) == expected


def test_nan_of_a_float_is_nan() -> None:
    (value,) = values(FLOAT8, "NaN")
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("type_", "text", "shown"),
    [
        (DATE, "4713-01-01 BC", "date"),
        (DATE, "10000-01-01", "date"),
        (TIMESTAMP, "0044-03-15 12:00:00 BC", "timestamp_ntz"),
        (TIMESTAMPTZ, "10000-01-01 00:00:00+00", "timestamp"),
        (numeric(10, 2), "NaN", r"decimal\(10,2\)"),
        (numeric(10, 2), "Infinity", r"decimal\(10,2\)"),
        (array_of(INT4), "{{1,2},{3,4}}", "array<int>"),
        (array_of(TEXT), "{{a,b},{c,d}}", "array<string>"),
        (array_of(TEXT), '{{"a b"}}', "array<string>"),
        (array_of(INT4), "[0:1]={1,2}", "array<int>"),
        (array_of(TEXT), '[0:1]={"a b",c}', "array<string>"),
        (array_of(numeric(4, 1)), "{1.0,NaN}", r"array<decimal\(4,1\)>"),
        (INT4, "2147483648", "int"),
        (BOOL, "yes", "boolean"),
        (BYTEA, "\\x0", "binary"),
        (BYTEA, "abc", "binary"),
    ],
)
def test_a_value_that_does_not_fit_ends_the_capture_and_says_how_to_continue(
    type_: PostgresType, text: str, shown: str
) -> None:
    with pytest.raises(DeclarationError, match=f"table shop.orders, column c: '.*' does not fit the type {shown}") as e:
        values(type_, *[None] * 10, text, *[None] * 10)
    assert f"'{text}'" in e.value.message
    assert e.value.hint == 'capture the column as text: as_text=["c"]'
    assert values(type_, text, as_text=True) == [text]


def test_a_text_that_is_not_utf_8_is_named() -> None:
    column = ColumnLayout("c", TEXT, pa.string())
    with pytest.raises(DeclarationError, match=r"column c: b'\\xff' is not UTF-8"):
        convert_text(pa.array([b"a", b"\xff"], pa.binary()), column, table="t")


def shown_array(items: list[str | None]) -> str:
    """As array_out of PostgreSQL shows it."""

    def shown(item: str | None) -> str:
        if item is None:
            return "NULL"
        if item == "" or item.upper() == "NULL" or any(letter in '"\\{},' or letter.isspace() for letter in item):
            return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return item

    return "{" + ",".join(map(shown, items)) + "}"


items = st.text(st.sampled_from('aN"\\{},; \nü')) | st.sampled_from(["NULL", "null", ""]) | st.none()


@given(st.lists(st.lists(items, max_size=4), max_size=5))
def test_arrays_of_texts_are_split_as_postgresql_joined_them(arrays: list[list[str | None]]) -> None:
    texts = [shown_array(array) for array in arrays]
    assert [parse_array(text) for text in texts] == arrays
    offsets, flat = split_arrays(pa.array(texts, pa.string()), ",", items_are_texts=True)
    assert pa.ListArray.from_arrays(offsets, flat).to_pylist() == arrays


@given(st.text('{}",\\a[]=:01'))
def test_any_text_is_an_array_or_does_not_fit(text: str) -> None:
    try:
        parsed = parse_array(text)
    except pa.ArrowInvalid:
        return
    assert shown_array(parsed).count(",") >= len(parsed) - 1
