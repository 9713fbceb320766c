"""Readers of values for a topic, from the text of a CSV field or an option, and from JSON.

A text that cannot be a number, a boolean, a time or binary is refused with a ValueError that says what to give. The
topic decides whether a value fits its column, such as the range of a number.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, TypeAlias

import pyarrow as pa

ReadValue: TypeAlias = Callable[[object], object]
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]

UNITS_PER_SECOND: dict[TimeUnit, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""What a number in a timestamp column can count, since 1970."""

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SPECIAL_FLOATS = {"NaN", "Infinity", "-Infinity"}
_INFINITIES = {"inf", "infinity"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DIGITS = 30  # of a number that counts time; the longest that can be a time has 21
_TIME_HINT = "give ISO 8601 text such as 2026-01-31T12:00:00Z; if it counts from 1970, use --time-unit s, ms, us or ns"


def has_decimals(type_: pa.DataType) -> bool:
    """Whether the type has a decimal at any depth, so that numbers in JSON must be read with all their digits."""
    if pa.types.is_decimal(type_):
        return True
    return any(has_decimals(type_.field(number).type) for number in range(type_.num_fields))


def text_reader(type_: pa.DataType, time_unit: TimeUnit | None = None) -> ReadValue:
    """The reader of a text: numbers and booleans in their usual spelling, binary as base64, nested types as JSON.

    With `time_unit`, a number in a timestamp column counts these units since 1970.
    """
    if pa.types.is_nested(type_):
        read_item = json_reader(type_, time_unit)
        return lambda value: read_item(_read_json_text(str(value)))
    if pa.types.is_boolean(type_):
        return _read_boolean_text
    if pa.types.is_integer(type_):
        return _read_integer_text
    if pa.types.is_floating(type_):
        return _read_float_text
    if pa.types.is_binary(type_):
        return _read_base64
    if pa.types.is_timestamp(type_):
        read_time = _time_reader(type_, time_unit)
        return lambda value: read_time(str(value).strip())
    return identity if pa.types.is_string(type_) else lambda value: str(value).strip()


def json_reader(type_: pa.DataType, time_unit: TimeUnit | None = None) -> ReadValue:
    """The reader of a JSON value. Only types that JSON lacks need a conversion."""
    if isinstance(type_, pa.ListType):
        read_item = json_reader(type_.value_type, time_unit)
        return lambda value: [read_item(item) for item in value] if isinstance(value, list) else value
    if isinstance(type_, pa.MapType):
        return _map_reader(text_reader(type_.key_type, time_unit), json_reader(type_.item_type, time_unit))
    if isinstance(type_, pa.StructType):
        return _struct_reader({field.name: json_reader(field.type, time_unit) for field in type_})
    if pa.types.is_floating(type_):
        return _read_json_float
    if pa.types.is_timestamp(type_):
        return _time_reader(type_, time_unit)
    return _read_base64 if pa.types.is_binary(type_) else identity


def _map_reader(read_key: ReadValue, read_item: ReadValue) -> ReadValue:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {read_key(key): read_item(item) for key, item in value.items()}

    return read


def _struct_reader(readers: dict[str, ReadValue]) -> ReadValue:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: readers.get(name, identity)(item) for name, item in value.items()}

    return read


def identity(value: object) -> object:
    """The reader of types that need no conversion."""
    return value


def _read_json_text(text: str) -> object:
    try:
        return json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        raise ValueError(f"give JSON; {error.msg} (at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError(_digits_problem()) from None
    except ArithmeticError:
        raise ValueError("a number is out of range") from None


def _read_boolean_text(value: object) -> object:
    text = str(value).strip().lower()
    if text not in _BOOLEANS:
        raise ValueError("give true or false")
    return _BOOLEANS[text]


def _read_integer_text(value: object) -> object:
    text = str(value)
    try:
        if "_" not in text:
            return int(text)
    except ValueError:
        if _INTEGER.fullmatch(text.strip()):
            raise ValueError(_digits_problem()) from None
    raise ValueError("give a whole number")


def _digits_problem() -> str:
    return f"a number can have at most {sys.get_int_max_str_digits():,} digits"


def _read_float_text(value: object) -> object:
    text = str(value)
    try:
        number = float(text)
    except ValueError:
        raise ValueError("give a number") from None
    if "_" in text:
        raise ValueError("give a number")
    if math.isinf(number) and text.strip().lstrip("+-").lower() not in _INFINITIES:
        raise ValueError("the number is too large for a double")
    return number


def _read_json_float(value: object) -> object:
    """Decimals are numbers with a fraction, or NaN and infinity; a float that is infinite was written with digits."""
    if isinstance(value, float):
        number, is_exact = value, False
    elif isinstance(value, Decimal):
        number, is_exact = float(value), not value.is_finite()
    else:
        return float(str(value)) if isinstance(value, str) and value in _SPECIAL_FLOATS else value
    if not is_exact and math.isinf(number):
        raise ValueError("the number is too large for a double")
    return number


def _time_reader(type_: pa.DataType, unit: TimeUnit | None) -> ReadValue:
    """Reads numbers by their unit, and leaves ISO 8601 to the topic.

    Without a unit a number is refused, also as text: ISO 8601 has spellings without punctuation, so that some numbers
    would be taken for times that nobody meant. Eight digits are such a date: 20260131.
    """

    has_zone = type_ == pa.timestamp("us", "UTC")

    def read(value: object) -> object:
        if isinstance(value, str):
            if value[4:5] == "-" or not _NUMBER.fullmatch(value) or (unit is None and len(value) == 8):
                return value
        elif isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return value
        if unit is None:
            raise ValueError(_TIME_HINT)
        moment = epoch_time(value, unit)
        return moment if has_zone else moment.replace(tzinfo=None)

    return read


def epoch_time(value: object, unit: TimeUnit) -> datetime:
    """The time that is so many units after 1970, cut to microseconds. ValueError if it is none."""
    number = Decimal(str(value))
    if not number.is_finite() or number.adjusted() >= _MOST_DIGITS:
        raise ValueError(f"it is outside the range of timestamps; does it count {unit}?")
    try:
        return _EPOCH + timedelta(microseconds=math.floor(number * 1_000_000 / UNITS_PER_SECOND[unit]))
    except OverflowError:
        raise ValueError(f"it is outside the range of timestamps; does it count {unit}?") from None


def _read_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("binary is given as base64") from None
