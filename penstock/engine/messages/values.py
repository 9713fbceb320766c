"""Values of messages as those of a declared column, one by one: nothing is rounded, and nothing guessed.

What a message says about the type of a field comes first; without it, the declared type decides.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

from penstock.engine.messages.change import FieldType
from penstock.flow.plan import TimeUnit

ReadValue: TypeAlias = Callable[[object, FieldType | None], object]

_MICROSECONDS: dict[str, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_TIME_UNITS: dict[str, TimeUnit] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_TIMES_OF_DAY: dict[str, TimeUnit] = {
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_DIGITS = 400  # 1e999999999 is short in JSON, and would fill the memory when written out
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY = dt.timedelta(days=1)


def value_reader(type_: pa.DataType, time_unit: TimeUnit | None = None) -> ReadValue:
    """The reader of values for a column of this type. None stays None; ValueError: the value means something else.

    What it returns is checked by the column. `time_unit` says what numbers in timestamps count where the message does
    not say it.
    """
    read = _plain_reader(type_, time_unit)

    def read_value(value: object, field: FieldType | None) -> object:
        value = _extended(value)
        return None if value is None else read(_decimal(value, field), field)

    return read_value


def _plain_reader(type_: pa.DataType, time_unit: TimeUnit | None) -> ReadValue:
    if pa.types.is_timestamp(type_):
        return lambda value, field: _timestamp(value, field, type_.tz is not None, time_unit)
    if pa.types.is_date(type_):
        return lambda value, field: _date(value, field)
    if isinstance(type_, pa.ListType):
        read_item = value_reader(type_.value_type, time_unit)
        return lambda value, _: [read_item(item, None) for item in value] if isinstance(value, list) else value
    if isinstance(type_, pa.StructType):
        readers = {field.name: value_reader(field.type, time_unit) for field in type_}
        return lambda value, _: _struct(value, readers)
    if isinstance(type_, pa.MapType):
        read_item = value_reader(type_.item_type, time_unit)
        return lambda value, _: (
            {name: read_item(item, None) for name, item in value.items()} if isinstance(value, dict) else value
        )
    if pa.types.is_string(type_):
        return _text
    if pa.types.is_binary(type_):
        return lambda value, _: _bytes(value) if isinstance(value, str) else value
    if pa.types.is_floating(type_):
        return lambda value, _: _double(value)
    if pa.types.is_integer(type_):
        return lambda value, _: _integer(value)
    if pa.types.is_boolean(type_):
        return lambda value, _: bool(value) if type(value) is int and value in (0, 1) else value
    return lambda value, _: value


def _struct(value: object, readers: Mapping[str, ReadValue]) -> object:
    """Fields that are not declared are left out, as columns are."""
    if not isinstance(value, dict):
        return value
    return {name: read(value.get(name), None) for name, read in readers.items()}


def _extended(value: object) -> object:
    """A value of MongoDB's extended JSON, such as {"$oid": "..."}; others are what they are."""
    if not isinstance(value, dict) or not 1 <= len(value) <= 2:
        return value
    match value:
        case {"$oid": str(text)} | {"$symbol": str(text)}:
            return text
        case {"$numberLong": str(text)} | {"$numberInt": str(text)}:
            return int(text)
        case {"$numberDouble": str(text)}:
            return float(text)
        case {"$numberDecimal": str(text)}:
            return Decimal(text)
        case {"$date": moment}:
            return (
                _moment(_extended(moment), "ms") if not isinstance(moment, str) else dt.datetime.fromisoformat(moment)
            )
        case {"$binary": {"base64": str(text)}}:
            return _bytes(text)
        case {"$binary": str(text)}:
            return _bytes(text)
    return value


def _decimal(value: object, field: FieldType | None) -> object:
    """The decimal that is meant by bytes with a scale, as Debezium writes it by default; others are what they are."""
    if field is not None and field.name == _DECIMAL and isinstance(value, str):
        return _unscaled(value, field.scale)
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:  # io.debezium.data.VariableScaleDecimal
        scale, digits = value["scale"], value["value"]
        if isinstance(scale, int) and isinstance(digits, str):
            return _unscaled(digits, scale)
    return value


def _unscaled(text: str, scale: int) -> Decimal:
    number = int.from_bytes(_bytes(text), "big", signed=True)
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))  # not scaleb, which rounds to 28 digits


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64: {error}") from None


def _timestamp(value: object, field: FieldType | None, has_zone: bool, time_unit: TimeUnit | None) -> object:
    if type(value) is int:
        unit = _TIME_UNITS.get(field.name) if field is not None else None
        if unit is None and time_unit is None:
            raise ValueError('a number could count anything since 1970: declare time_unit="ms", or "s", "us", "ns"')
        moment = _moment(value, unit or time_unit or "us")
        return moment if has_zone else moment.replace(tzinfo=None)
    if isinstance(value, dt.datetime):
        return value if has_zone else value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def _moment(number: object, unit: TimeUnit) -> dt.datetime:
    """So many units after 1970, in whole microseconds."""
    if type(number) is not int:
        raise ValueError(f"it is no whole number of {unit}")
    microseconds = number // 1_000 if unit == "ns" else number * _MICROSECONDS[unit]
    try:
        return _EPOCH + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValueError("only the years 1 to 9999 can be shown") from None


def _date(value: object, field: FieldType | None) -> object:
    if type(value) is int:
        if field is not None and field.name in _TIME_UNITS:  # the DATE of Oracle has a time
            moment = _moment(value, _TIME_UNITS[field.name])
            if moment.timetz() != dt.time(tzinfo=dt.UTC):
                raise ValueError("it has a time of day: declare timestamp")
            return moment.date()
        try:
            return _EPOCH.date() + value * _DAY
        except OverflowError:
            raise ValueError("only the years 1 to 9999 can be shown") from None
    return value


def _text(value: object, field: FieldType | None) -> object:
    if type(value) is int and field is not None and field.name in _TIMES_OF_DAY:
        return _time_of_day(value, _TIMES_OF_DAY[field.name])
    if isinstance(value, dict | list):
        return _json_text(value)
    if isinstance(value, Decimal):
        return _digits(value)
    return str(value) if type(value) is int else value


def _json_text(value: object) -> str:
    """The JSON of a value; numbers with a point, which were read as decimals, keep all their digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(name)}:{_json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return _digits(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _digits(number: Decimal) -> str:
    """Without an exponent, as long as that is not absurdly long."""
    return format(number, "f") if abs(number.adjusted()) <= _MOST_DIGITS else str(number)


def _time_of_day(number: int, unit: TimeUnit) -> str:
    microseconds = number // 1_000 if unit == "ns" else number * _MICROSECONDS[unit]
    sign, microseconds = ("-" if microseconds < 0 else ""), abs(microseconds)  # TIME of MySQL has a sign and many hours
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _double(value: object) -> object:
    """Numbers in JSON were read as decimals, to keep all of their digits for columns that need them."""
    if isinstance(value, Decimal) or value in ("NaN", "Infinity", "-Infinity"):
        return float(str(value))
    return value


def _integer(value: object) -> object:
    if isinstance(value, Decimal) and value.adjusted() < _MOST_DIGITS and value == value.to_integral_value():
        return int(value)
    return value
