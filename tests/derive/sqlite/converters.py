"""Converters from SQLite back to Python values, by the declared type of a column (see `declared_type`)."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import lru_cache, partial

_DECIMAL = re.compile(r"DECIMAL(?:_[A-Z]+)?_\d+_(\d+)")
_ALL_DIGITS = Context(prec=60)


def register_converters(declared_types: Iterable[str]) -> None:
    """Tell sqlite3 how to convert columns of these types. It keeps converters for the whole process."""
    for declared in set(declared_types):
        convert = _converter(declared)
        if convert is not None:
            sqlite3.register_converter(declared, convert)


def _converter(declared: str) -> Callable[[bytes], object] | None:
    decimal = _DECIMAL.fullmatch(declared)
    return partial(_decimal, int(decimal[1])) if decimal else _CONVERTERS.get(declared)


@lru_cache(maxsize=4096)
def _timestamp(raw: bytes) -> datetime | str:
    wall = _wall_time(raw)
    return wall.replace(tzinfo=UTC) if isinstance(wall, datetime) else wall


def _wall_time(raw: bytes) -> datetime | str:
    """A time without a zone; text if Python has no such year."""
    text = raw.decode()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _date(raw: bytes) -> date | str:
    text = raw.decode()
    try:
        return date.fromisoformat(text)
    except ValueError:
        return text


def _decimal(scale: int, raw: bytes) -> Decimal:
    return Decimal(raw.decode()).quantize(Decimal(1).scaleb(-scale), context=_ALL_DIGITS)


_CONVERTERS: dict[str, Callable[[bytes], object]] = {
    "BOOLEAN_INT": lambda raw: raw != b"0",
    "TIMESTAMP_TEXT": _timestamp,
    "TIMESTAMP_NTZ_TEXT": _wall_time,
    "DATE_TEXT": _date,
    "JSON_TEXT": json.loads,
}
