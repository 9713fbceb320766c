"""Which Python value a column of each type takes."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal

import numpy as np
import pytest

from penstock.schema.arrow import parse_schema
from penstock.schema.from_python import MisfitError, Reader, reader_of

WARSAW = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
NAIVE_NOON = NOON.replace(tzinfo=None)


class Colour(enum.IntEnum):
    RED = 7


def reader(type_: str) -> Reader:
    return reader_of(parse_schema(f"x {type_}").field("x").type, "x")


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        ("boolean", True, True),
        ("boolean", np.bool_(False), False),
        ("tinyint", -128, -128),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("int", np.int64(5), 5),
        ("int", Colour.RED, 7),
        ("double", 1.5, 1.5),
        ("double", 3, 3.0),
        ("double", 2**80, 2.0**80),
        ("double", np.float32(0.5), 0.5),
        ("float", 0.1, 0.1),
        ("string", "żółć", "żółć"),
        ("binary", bytearray(b"ab"), b"ab"),
        ("binary", memoryview(b"ab"), b"ab"),
        ("decimal(10,2)", Decimal("1.2"), Decimal("1.20")),
        ("decimal(10,2)", Decimal("1.2300"), Decimal("1.23")),
        ("decimal(10,2)", Decimal("1E+3"), Decimal("1000.00")),
        ("decimal(10,2)", "-12.34", Decimal("-12.34")),
        ("decimal(10,2)", 7, Decimal("7.00")),
        ("decimal(10,2)", 12.34, Decimal("12.34")),
        ("date", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ("date", "2024-02-29", dt.date(2024, 2, 29)),
        ("timestamp", NOON, NOON),
        ("timestamp", NAIVE_NOON, NOON),
        ("timestamp", NOON.astimezone(WARSAW), NOON),
        ("timestamp", "2024-02-29T12:00:00Z", NOON),
        ("timestamp", "2024-02-29 14:00:00.000000000+02:00", NOON),
        ("timestamp", "2024-02-29T12:00", NOON),
        ("timestamp", dt.date(2024, 2, 29), NOON.replace(hour=0)),
        ("timestamp_ntz", NAIVE_NOON, NAIVE_NOON),
        ("timestamp_ntz", "2024-02-29T12:00:00", NAIVE_NOON),
        ("array<int>", (1, None), [1, None]),
        ("map<string,int>", {"a": 1}, [("a", 1)]),
        ("map<string,int>", [("a", 1), ("b", None)], [("a", 1), ("b", None)]),
        ("struct<a: int, b: string>", {"a": 1}, {"a": 1, "b": None}),
        ("array<struct<a: array<date>>>", [{"a": ["2024-02-29"]}], [{"a": [dt.date(2024, 2, 29)]}]),
    ],
)
def test_a_value_of_the_right_kind_is_taken(type_: str, value: object, stored: object) -> None:
    read = reader(type_)(value)
    assert read == stored
    assert type(read) is type(stored)


@pytest.mark.parametrize(
    ("type_", "value", "hint"),
    [
        ("boolean", 1, "True or False"),
        ("int", True, "give an int"),
        ("int", 1.0, "give an int"),
        ("int", "1", "give an int"),
        ("int", 2**31, "the range is -2147483648 to 2147483647"),
        ("tinyint", -129, "the range is -128 to 127"),
        ("double", True, "give a float"),
        ("double", "1.5", "give a float"),
        ("double", 2**53 + 1, "no exact double"),
        ("double", 10**400, "too large"),
        ("float", 1e300, "too large"),
        ("string", 1, "give a str"),
        ("string", b"x", "give a str"),
        ("string", "\ud800", "surrogates not allowed"),
        ("binary", "x", "give bytes"),
        ("decimal(10,2)", Decimal("1.234"), "at most 2 digits after the point"),
        ("decimal(10,2)", 0.1 + 0.2, "at most 2 digits after the point"),
        ("decimal(10,2)", 10**8, "at most 8 digits before the point"),
        ("decimal(10,2)", "1e999999", "at most 8 digits before the point"),
        ("decimal(10,2)", "ten", "give a number"),
        ("decimal(10,2)", float("nan"), "NaN or infinity"),
        ("decimal(10,2)", Decimal("Infinity"), "NaN or infinity"),
        ("decimal(10,2)", True, "give a Decimal"),
        ("date", NAIVE_NOON, "not a datetime"),
        ("date", "29.02.2024", "give a date such as '2024-12-31'"),
        ("date", 19000, "give a date"),
        ("timestamp", 1709208000, "give a datetime"),
        ("timestamp", "yesterday", "give a time such as '2024-12-31T23:59:59Z'"),
        ("timestamp", "2024-02-29T12:00:00.0000001Z", "this one is finer"),
        ("timestamp_ntz", NOON, "without a zone"),
        ("timestamp_ntz", "2024-02-29T12:00:00Z", "without a zone"),
        ("array<int>", "12", "give a list"),
        ("map<string,int>", "a", "give a mapping"),
        ("map<string,int>", {None: 1}, "cannot be null"),
        ("struct<street: string>", ["Main"], "give a mapping"),
        ("struct<street: string>", {"stret": "Main"}, "no field 'stret'; did you mean 'street'?"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_what_to_give(type_: str, value: object, hint: str) -> None:
    with pytest.raises(MisfitError, match=r"^column 'x' takes .*; found .* \(\w+\)$") as caught:
        reader(type_)(value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        ("struct<a: struct<b: int>>", {"a": {"b": "x"}}, "x.a.b"),
        ("array<int>", [1, "x"], "x[]"),
        ("map<string,int>", {1: 1}, "x.key"),
        ("map<string,array<int>>", {"a": [None, "x"]}, "x.value[]"),
    ],
)
def test_a_nested_misfit_is_named_by_its_path(type_: str, value: object, path: str) -> None:
    with pytest.raises(MisfitError) as caught:
        reader(type_)(value)
    assert str(caught.value).startswith(f"column {path!r} takes ")


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(MisfitError) as caught:
        reader("int")("x" * 10_000)
    assert len(str(caught.value)) < 100
