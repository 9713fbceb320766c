"""Readers of values for a topic, from the text of a CSV field or an option, and from JSON.

A text that cannot be a number, a boolean or binary is refused with a ValueError that says what to give. The topic
decides whether a value fits its column, such as the range of a number.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

ReadValue: TypeAlias = Callable[[object], object]

_INTEGER = re.compile(r"[+-]?\d+")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SPECIAL_FLOATS = {"NaN", "Infinity", "-Infinity"}


def has_decimals(type_: pa.DataType) -> bool:
    """Whether the type has a decimal at any depth, so that numbers in JSON must be read with all their digits."""
    if pa.types.is_decimal(type_):
        return True
    return any(has_decimals(type_.field(number).type) for number in range(type_.num_fields))


def text_reader(type_: pa.DataType) -> ReadValue:
    """The reader of a text: numbers and booleans in their usual spelling, binary as base64, nested types as JSON."""
    if pa.types.is_nested(type_):
        read_item = json_reader(type_)
        return lambda value: read_item(json.loads(str(value), parse_float=Decimal))
    if pa.types.is_boolean(type_):
        return _read_boolean_text
    if pa.types.is_integer(type_):
        return _read_integer_text
    if pa.types.is_floating(type_):
        return _read_float_text
    if pa.types.is_binary(type_):
        return _read_base64
    return identity if pa.types.is_string(type_) else lambda value: str(value).strip()


def json_reader(type_: pa.DataType) -> ReadValue:
    """The reader of a JSON value. Only types that JSON lacks need a conversion."""
    if isinstance(type_, pa.ListType):
        read_item = json_reader(type_.value_type)
        return lambda value: [read_item(item) for item in value] if isinstance(value, list) else value
    if isinstance(type_, pa.MapType):
        return _map_reader(text_reader(type_.key_type), json_reader(type_.item_type))
    if isinstance(type_, pa.StructType):
        return _struct_reader({field.name: json_reader(field.type) for field in type_})
    if pa.types.is_floating(type_):
        return _read_json_float
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


def _read_boolean_text(value: object) -> object:
    text = str(value).strip().lower()
    if text not in _BOOLEANS:
        raise ValueError("give true or false")
    return _BOOLEANS[text]


def _read_integer_text(value: object) -> object:
    if not _INTEGER.fullmatch(str(value).strip()):
        raise ValueError("give a whole number")
    return int(str(value))


def _read_float_text(value: object) -> object:
    try:
        return float(str(value))
    except ValueError:
        raise ValueError("give a number") from None


def _read_json_float(value: object) -> object:
    return float(value) if isinstance(value, Decimal) or value in _SPECIAL_FLOATS else value


def _read_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("binary is given as base64") from None
