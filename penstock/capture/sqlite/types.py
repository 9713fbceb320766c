"""What the declared types of SQLite become, and its values as columns. SQLite enforces no types: values are checked.

A column is converted as a whole if all of its values are of the expected storage class. Otherwise its values are read
one by one: each is converted without loss, or named in the error.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

Value: TypeAlias = "int | float | str | bytes | None"
"""A value as the sqlite3 module gives it, one Python type for each storage class."""

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|DEC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_LARGEST_EXACT_INTEGER = 2**53  # of doubles
_MOST_DIGITS = 38
_TIMES = ("DATE", "TIME")


class MisfitError(ValueError):
    """A value does not fit the type of its column. As text: the value, its storage class, and what is wrong with it."""

    def __init__(self, value: Value, reason: str = "") -> None:
        super().__init__(f"{reprlib.repr(value)} ({_STORAGE_CLASSES[type(value)]}){reason}")


def arrow_type(declared: str, *, as_text: bool = False) -> pa.DataType:
    """The type for a declared type, which may be any text. Names are looked at as SQLite does for affinities."""
    name = declared.upper()
    if as_text or any(word in name for word in _TIMES):
        return pa.string()
    if name.startswith("BOOL"):
        return pa.bool_()
    if "INT" in name and "POINT" not in name:
        return pa.int64()
    if any(word in name for word in ("CHAR", "CLOB", "TEXT")):
        return pa.string()
    if "BLOB" in name or "BINARY" in name or "BYTEA" in name:
        return pa.binary()
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    return _number_type(name) or pa.string()


def _number_type(name: str) -> pa.DataType | None:
    match = _DECIMAL.fullmatch(name.strip())
    if match is not None:
        precision, scale = int(match[1]), int(match[2] or 0)
        return pa.decimal128(precision, scale) if 0 < precision <= _MOST_DIGITS and scale <= precision else None
    return pa.float64() if name.strip() in ("DECIMAL", "NUMERIC", "DEC", "NUMBER") else None


def to_column(
    values: Sequence[Value], type_: pa.DataType, *, as_text: bool = False
) -> pa.Array[pa.Scalar[pa.DataType]]:
    """Values as a column. MisfitError about the first value that does not fit."""
    if frozenset(map(type, values)) <= _EXPECTED.get(type_, _NULL_ONLY):
        try:
            return pa.array(values, type_)
        except (UnicodeEncodeError, pa.ArrowException):
            pass  # Reading one by one finds the value and names it.
    read = show_as_text if as_text else _reader_of(type_)
    return pa.array([None if value is None else read(value) for value in values], type_)


_NULL_ONLY = frozenset({type(None)})
_EXPECTED: dict[pa.DataType, frozenset[type]] = {
    pa.int64(): frozenset({int}) | _NULL_ONLY,
    pa.float64(): frozenset({float}) | _NULL_ONLY,
    pa.string(): frozenset({str}) | _NULL_ONLY,
    pa.binary(): frozenset({bytes}) | _NULL_ONLY,
}


_STORAGE_CLASSES = {int: "integer", float: "real", str: "text", bytes: "blob", type(None): "null"}


def _reader_of(type_: pa.DataType) -> Callable[[Value], object]:
    if isinstance(type_, pa.Decimal128Type):
        return _decimal_reader(type_)
    return _READERS[type_]


def _read_boolean(value: Value) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise MisfitError(value, ", which is neither 0 nor 1")


def _read_integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise MisfitError(value)


def _read_double(value: Value) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        if abs(value) <= _LARGEST_EXACT_INTEGER:
            return float(value)
        raise MisfitError(value, ", which a double cannot hold exactly")
    raise MisfitError(value)


def _read_text(value: Value) -> str:
    """Text, and numbers as text where SQLite stores what was declared with a type of its own: dates, JSON, UUIDs."""
    if isinstance(value, bytes):
        raise MisfitError(value)
    if isinstance(value, str) and not _is_unicode(value):
        raise MisfitError(value, ", which is not UTF-8")
    return show_as_text(value)


def _read_binary(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    raise MisfitError(value)


def _decimal_reader(type_: pa.Decimal128Type) -> Callable[[Value], object]:
    def read_decimal(value: Value) -> Decimal:
        # SQLite has no decimals: it stores a double, of which it shows 15 digits. Those are what was meant.
        if isinstance(value, float):
            number = Decimal(f"{value:.15g}")
        elif isinstance(value, int):
            number = Decimal(value)
        else:
            raise MisfitError(value)
        if not number.is_finite():
            raise MisfitError(value)
        digits, exponent = number.normalize().as_tuple()[1:]
        assert isinstance(exponent, int)
        if -exponent > type_.scale or len(digits) + exponent > type_.precision - type_.scale:
            raise MisfitError(value, ", which has more digits")
        return number

    return read_decimal


_READERS: dict[pa.DataType, Callable[[Value], object]] = {
    pa.bool_(): _read_boolean,
    pa.int64(): _read_integer,
    pa.float64(): _read_double,
    pa.string(): _read_text,
    pa.binary(): _read_binary,
}


def show_as_text(value: Value) -> str:
    """Any value as text: numbers with all their digits, blobs (and texts that are not UTF-8) as SQL writes them."""
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, str):
        return value if _is_unicode(value) else f"X'{value.encode(errors='surrogateescape').hex().upper()}'"
    return str(value)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
