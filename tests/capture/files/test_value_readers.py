"""Readers of values, from text and from JSON."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.files.value_readers import has_decimals, json_reader, text_reader
from penstock.cli.output import json_value


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.int64(), "17", 17),
        (pa.int64(), " -17 ", -17),
        (pa.float64(), "1.5", 1.5),
        (pa.bool_(), "TRUE", True),
        (pa.bool_(), "0", False),
        (pa.string(), " 17 ", " 17 "),
        (pa.binary(), "AP8=", b"\x00\xff"),
        (pa.decimal128(10, 2), " 1.50", "1.50"),
        (pa.list_(pa.int64()), "[1, 2]", [1, 2]),
        (pa.map_(pa.int64(), pa.string()), '{"1": "a"}', {1: "a"}),
        (pa.struct({"b": pa.binary(), "d": pa.float64()}), '{"b": "AP8=", "d": 0.5}', {"b": b"\x00\xff", "d": 0.5}),
    ],
)
def test_text_is_read_by_the_type(type_: pa.DataType, text: str, value: object) -> None:
    assert text_reader(type_)(text) == value


@pytest.mark.parametrize(
    ("type_", "text", "what"),
    [
        (pa.binary(), "***", "binary is given as base64"),
        (pa.list_(pa.int64()), "***", "Expecting value"),
        (pa.int64(), "1_7", "give a whole number"),
        (pa.float32(), "much", "give a number"),
        (pa.bool_(), "maybe", "give true or false"),
    ],
)
def test_a_text_that_cannot_be_of_the_type_is_refused_with_what_to_give(
    type_: pa.DataType, text: str, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        text_reader(type_)(text)


@given(st.floats(allow_nan=False), st.binary(), st.dictionaries(st.integers(0, 9), st.binary(max_size=4)))
def test_what_is_printed_as_json_is_read_back_the_same(number: float, data: bytes, pairs: dict[int, bytes]) -> None:
    assert json_reader(pa.float64())(json_value(number)) == number
    assert json_reader(pa.binary())(json_value(data)) == data
    assert json_reader(pa.map_(pa.int64(), pa.binary()))(json_value(pairs)) == pairs


def test_exact_numbers_become_floats_where_the_topic_has_floats() -> None:
    assert json_reader(pa.list_(pa.float64()))([Decimal("0.1"), 2, None]) == [0.1, 2, None]


def test_a_decimal_is_found_at_any_depth() -> None:
    money = pa.decimal128(10, 2)
    for type_ in (money, pa.list_(money), pa.map_(pa.string(), money), pa.struct({"a": pa.list_(money)})):
        assert has_decimals(type_)
    assert not has_decimals(pa.map_(pa.string(), pa.list_(pa.float64())))
