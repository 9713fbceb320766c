"""Arrow columns for SQLite: the type that a column is declared with, and its values as parameters of statements.

A declared type says what a value is and, by SQLite's rules, how it is stored: TIMESTAMP_TEXT is a time stored as text.
Whole columns are converted at once: only arrays, structs and maps need a loop over rows.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from penstock.derive.sqlite.columns import Array, Numbers, Values, null_mask, numbers_of, values_of
from penstock.derive.sqlite.nested_json import json_texts
from penstock.derive.sqlite.texts import date_texts, decimal_texts, timestamp_texts

# A double holds every number of 15 digits exactly, wherever its decimal point is.
EXACT_DIGITS = 15
# Every whole number of 18 digits is an int64.
INTEGER_DIGITS = 18

_DECLARED: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN_INT",
    pa.int8(): "INTEGER",
    pa.int16(): "INTEGER",
    pa.int32(): "INTEGER",
    pa.int64(): "INTEGER",
    pa.float32(): "REAL",
    pa.float64(): "REAL",
    pa.string(): "TEXT",
    pa.binary(): "BLOB",
    pa.date32(): "DATE_TEXT",
    pa.timestamp("us", "UTC"): "TIMESTAMP_TEXT",
    pa.timestamp("us"): "TIMESTAMP_NTZ_TEXT",
}


def declared_type(type_: pa.DataType, *, in_key: bool) -> str:
    """The type that a column is declared with in SQLite. `type_` is in the normal form of Penstock's schemas."""
    if isinstance(type_, pa.Decimal128Type):
        return f"DECIMAL{_decimal_storage(type_, in_key=in_key)}_{type_.precision}_{type_.scale}"
    if pa.types.is_nested(type_):
        return "JSON_TEXT"
    return _DECLARED[type_]


def _decimal_storage(type_: pa.Decimal128Type, *, in_key: bool) -> str:
    """The part of the declared type by which SQLite decides whether it may turn a text into a number.

    Decimals are numbers, so that they sort and add up. They are text only where two different ones could become equal:
    keys with a fraction and more than 15 digits, and whole numbers that no int64 holds (a BLOB column stores numbers
    and texts as they are given).
    """
    if type_.scale == 0:
        return "" if type_.precision <= INTEGER_DIGITS else "_BLOB"
    return "_TEXT" if in_key and type_.precision > EXACT_DIGITS else ""


def null_of_key(declared: str) -> object:
    """The value that stands for null in a key column of the SQL table for rows with nulls in their key.

    SQLite treats values of different types as different, and only BLOB columns contain bytes.
    """
    return 0 if declared == "BLOB" else b""


def column_parameters(array: Array, *, in_key: bool = False, null: object = None) -> list[object]:
    """The values as SQLite accepts them, with `null` for each null. The type of the array is in normal form."""
    values = _values(array, in_key=in_key)
    if array.null_count == 0:
        return cast(list[object], values.tolist())
    objects = values.astype(object)
    objects[null_mask(array)] = null
    return cast(list[object], objects.tolist())


def _values(array: Array, *, in_key: bool) -> Values:
    """The values as a NumPy array. Where the column is null, they may be anything."""
    type_ = array.type
    if pa.types.is_boolean(type_):
        return numbers_of(array.cast(pa.int8()))
    if pa.types.is_integer(type_):
        return numbers_of(array)
    if pa.types.is_floating(type_):
        return _named_nan(numbers_of(array)) if in_key else numbers_of(array)
    if isinstance(type_, pa.Decimal128Type):
        return _decimals(array, type_, in_key=in_key)
    if pa.types.is_timestamp(type_):
        return timestamp_texts(array)
    if pa.types.is_date(type_):
        return date_texts(array)
    if pa.types.is_nested(type_):
        return json_texts(array)
    return values_of(array)


def _named_nan(values: Values) -> Values:
    """Replace NaN by text: SQLite would store null, but a key that is NaN differs from a key that is null."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    objects = values.astype(object)
    objects[missing] = "NaN"
    return objects


def _decimals(array: Array, type_: pa.Decimal128Type, *, in_key: bool) -> Values:
    if _decimal_storage(type_, in_key=in_key) == "_TEXT":
        return decimal_texts(array)
    low, high = unscaled_words(array)
    small = high == (low >> 63)
    if type_.scale == 0:
        return _whole_numbers(array, low, small)
    large = high.astype(np.float64) * 2.0**64 + low.view(np.uint64).astype(np.float64)
    # Both are exact up to 15 digits, so the quotient is the double nearest to the decimal: `= 0.1` finds it.
    numbers: Values = np.where(small, low.astype(np.float64), large) / 10.0**type_.scale
    return numbers


def _whole_numbers(array: Array, low: Numbers, small: Values) -> Values:
    small = small | null_mask(array)
    if small.all():
        return low
    objects = low.astype(object)
    objects[~small] = decimal_texts(array.filter(pa.array(~small)))
    return objects


def unscaled_words(array: Array) -> tuple[Numbers, Numbers]:
    """The unscaled values of decimals, 128-bit integers: their low and their high 64 bits."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.int64)
    words = np.frombuffer(memoryview(buffer), np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return words[0::2].copy(), words[1::2].copy()
