"""Which Python values a column of each type accepts, one value at a time.

The slow and strict path of rows.py: it decides what is accepted, and explains what is wrong with a value that is not.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
import reprlib
import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.schema.ddl import type_ddl
from penstock.suggest import closest

Reader: TypeAlias = Callable[[object], object]
"""Turns a user's value into the one that Arrow stores exactly, or raises MisfitError. None stays None."""

_PANDAS_NULLS = frozenset({"NaTType", "NAType"})  # by name, so that pandas need not be imported
# Python reads at most six digits of a fraction of a second, and silently drops the rest.
_BEYOND_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")


class MisfitError(Exception):
    """A value does not fit its column. The message names the column and the value; the caller adds the row number."""

    def __init__(self, path: str, type_: pa.DataType, value: object, hint: str) -> None:
        super().__init__(
            f"column {path!r} takes {type_ddl(type_)}; found {reprlib.repr(value)} ({type(value).__name__})"
        )
        self.hint = hint


def reader_of(type_: pa.DataType, path: str) -> Reader:
    """Return the reader of a column of this type; `path` names it in errors, such as `address.zip`.

    boolean takes bool. Integers take int in their range, never bool or float. float and double take float, and int when
    exact; float rounds, as there is no Python value for it. string takes str. binary takes bytes, bytearray and
    memoryview. decimal takes Decimal, int and str when exact, and a float by its shortest text (12.34 is 12.34, but
    0.1 + 0.2 has too many digits). date takes date. timestamp takes datetime, and one without a zone means UTC;
    timestamp_ntz takes datetime without a zone. Both take a date as its midnight. All three take ISO 8601 text.
    array takes list and tuple, struct a mapping with known names, map a mapping or a list of pairs. None is null, and
    so are NaT and NA of pandas; NaN is a number.
    """
    if isinstance(type_, pa.ListType):
        return _list_reader(type_, path)
    if isinstance(type_, pa.MapType):
        return _map_reader(type_, path)
    if isinstance(type_, pa.StructType):
        return _struct_reader(type_, path)
    return _guard(_scalar_reader(type_), type_, path)


def _guard(read: Reader, type_: pa.DataType, path: str) -> Reader:
    """Wrap a reader: None passes, and a refusal becomes a MisfitError with the refusal's text as its hint."""

    def read_or_refuse(value: object) -> object:
        if value is None or type(value).__name__ in _PANDAS_NULLS:
            return None
        try:
            return read(value)
        except (TypeError, ValueError, OverflowError) as refusal:
            hint = f"{refusal}; for null, give None and not NaN" if _is_nan(value) else str(refusal)
            raise MisfitError(path, type_, value, hint) from None

    return read_or_refuse


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _scalar_reader(type_: pa.DataType) -> Reader:
    if isinstance(type_, pa.Decimal128Type):
        return _decimal_reader(type_.precision, type_.scale)
    if isinstance(type_, pa.TimestampType):
        return _read_instant if type_.tz else _read_wall_time
    if pa.types.is_integer(type_):
        return _integer_reader(type_.bit_width)
    return _READERS[type_]


def _read_boolean(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError("give True or False")
    return bool(value)


def _integer_reader(bits: int) -> Reader:
    limit = 1 << (bits - 1)

    def read(value: object) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError("give an int")
        number = operator.index(value)
        if not -limit <= number < limit:
            raise OverflowError(f"the range is {-limit} to {limit - 1}")
        return number

    return read


def _read_double(value: object) -> float:
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError("give a float or an int")
    number = operator.index(value)
    if int(float(number)) != number:
        raise OverflowError("this integer has no exact double; declare bigint or decimal")
    return float(number)


def _read_float(value: object) -> float:
    number = _read_double(value)
    struct.pack("<f", number)  # Raises OverflowError when it is too large for 32 bits.
    return number


def _read_string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("give a str")
    value.encode()  # Raises UnicodeEncodeError for half a surrogate pair, which no file can hold.
    return value


def _read_binary(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("give bytes")
    return bytes(value)


def _read_date(value: object) -> dt.date:
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            raise ValueError("give a date such as '2024-12-31'") from None
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise TypeError("give a date (not a datetime) or text such as '2024-12-31'")
    return value


def _read_datetime(value: object) -> dt.datetime:
    if isinstance(value, str):
        if _BEYOND_MICROSECONDS.search(value):
            raise ValueError("timestamps have microseconds; this one is finer")
        try:
            return dt.datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("give a time such as '2024-12-31T23:59:59Z'") from None
    if isinstance(value, dt.datetime):
        if getattr(value, "nanosecond", 0):  # a Timestamp of pandas
            raise ValueError("timestamps have microseconds; this one is finer")
        return value
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    raise TypeError("give a datetime or text such as '2024-12-31T23:59:59Z'")


def _read_instant(value: object) -> dt.datetime:
    moment = _read_datetime(value)
    # In UTC, so that a moment that no datetime can hold in UTC is refused now and not when it is read.
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def _read_wall_time(value: object) -> dt.datetime:
    moment = _read_datetime(value)
    if moment.tzinfo is not None:
        raise ValueError("this column has no zone; declare timestamp, or give a datetime without a zone")
    return moment


def _decimal_reader(precision: int, scale: int) -> Reader:
    step = Decimal(1).scaleb(-scale)
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def read(value: object) -> Decimal:
        number = _exact_decimal(value)
        if not number.is_finite():
            raise ValueError("a decimal column cannot hold NaN or infinity")
        try:
            return number.quantize(step, context=exact)
        except Inexact:
            raise ValueError(f"there are at most {scale} digits after the point; round it first") from None
        except InvalidOperation:
            raise OverflowError(f"there are at most {precision - scale} digits before the point") from None

    return read


def _exact_decimal(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, float):
        return Decimal(repr(float(value)))
    if isinstance(value, bool) or not (isinstance(value, str) or hasattr(value, "__index__")):
        raise TypeError("give a Decimal, an int, or text such as '12.34'")
    try:
        return Decimal(value if isinstance(value, str) else operator.index(value))
    except InvalidOperation:
        raise ValueError("give a number such as '12.34'") from None


_READERS: dict[pa.DataType, Reader] = {
    pa.bool_(): _read_boolean,
    pa.float32(): _read_float,
    pa.float64(): _read_double,
    pa.string(): _read_string,
    pa.binary(): _read_binary,
    pa.date32(): _read_date,
}


def _list_reader(type_: pa.ListType[pa.DataType], path: str) -> Reader:
    read_item = reader_of(type_.value_type, f"{path}[]")

    def read(value: object) -> list[object]:
        if not isinstance(value, list | tuple):
            raise TypeError("give a list")
        return [read_item(item) for item in value]

    return _guard(read, type_, path)


def _map_reader(type_: pa.MapType[pa.DataType, pa.DataType], path: str) -> Reader:
    read_key = reader_of(type_.key_type, f"{path}.key")
    read_item = reader_of(type_.item_type, f"{path}.value")

    def read(value: object) -> list[tuple[object, object]]:
        if not isinstance(value, Mapping | list | tuple):
            raise TypeError("give a mapping")
        pairs = dict(value)
        if None in pairs:
            raise ValueError("a key of a map cannot be null")
        return [(read_key(key), read_item(item)) for key, item in pairs.items()]

    return _guard(read, type_, path)


def _struct_reader(type_: pa.StructType, path: str) -> Reader:
    readers = {field.name: reader_of(field.type, f"{path}.{field.name}") for field in type_}

    def read(value: object) -> dict[str, object]:
        if not isinstance(value, Mapping):
            raise TypeError("give a mapping")
        for name in value:
            if name not in readers:
                meant = closest(str(name), list(readers)) or f"its fields are: {', '.join(readers)}"
                raise ValueError(f"it has no field {name!r}; {meant}")
        return {name: read_field(value.get(name)) for name, read_field in readers.items()}

    return _guard(read, type_, path)
