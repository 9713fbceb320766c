"""Durations and sizes as people write them: '7 days', '1 hour 30 minutes', '512 MB', '1 GiB'; and times as numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from penstock.errors import DeclarationError

NO_TIME = -(2**63)
"""Times are microseconds since 1970; this stands where there is none."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECONDS: dict[str, Decimal] = {
    "microsecond": Decimal("0.000001"),
    "millisecond": Decimal("0.001"),
    "second": Decimal(1),
    "minute": Decimal(60),
    "hour": Decimal(3_600),
    "day": Decimal(86_400),
    "week": Decimal(604_800),
}
_SHORT_SECONDS = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
}
_BYTES: dict[str, Decimal] = {
    "b": Decimal(1),
    "byte": Decimal(1),
    "kb": Decimal(10**3),
    "mb": Decimal(10**6),
    "gb": Decimal(10**9),
    "tb": Decimal(10**12),
    "kib": Decimal(2**10),
    "mib": Decimal(2**20),
    "gib": Decimal(2**30),
    "tib": Decimal(2**40),
}
_PART = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\s*")
_DURATION_HINT = "write a number and a unit: '90 seconds', '15 minutes', '1 hour', '7 days', '2 weeks'"
_SIZE_HINT = "write a number and a unit: '64 kB', '512 MB', '1 GB' (powers of 1000), '1 GiB' (powers of 1024)"


def utc_datetime(microseconds: int) -> datetime:
    """A time as a datetime in UTC. OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=microseconds)


def now_microseconds() -> int:
    """The time now, by the clock of this machine."""
    return time.time_ns() // 1_000


def parse_duration(text: str) -> float:
    """The seconds of a duration such as '7 days'; parts add up, as in '1 hour 30 minutes'.

    Months and years are refused: they have no fixed length.
    """
    units = _SECONDS | {short: _SECONDS[name] for short, name in _SHORT_SECONDS.items()}
    lengths = [(number, _length(unit, units)) for number, unit in _parts(text)]
    known = [number * length for number, length in lengths if length is not None]
    if not known or len(known) < len(lengths):
        raise DeclarationError(f"'{text}' is not a duration", hint=_DURATION_HINT)
    return float(sum(known))


def parse_size(text: str) -> int:
    """The bytes of a size such as '512 MB'; a number alone is bytes."""
    parts = _parts(text)
    length = _length(parts[0][1] or "b", _BYTES) if len(parts) == 1 else None
    if length is None:
        raise DeclarationError(f"'{text}' is not a size", hint=_SIZE_HINT)
    size = parts[0][0] * length
    if size != int(size):
        raise DeclarationError(f"'{text}' is not a whole number of bytes", hint=_SIZE_HINT)
    return int(size)


def format_duration(seconds: float) -> str:
    """The duration in the largest unit that divides it: 604800 is '1 week', 90 is '90 seconds'."""
    exact = Decimal(repr(seconds))
    for name, length in sorted(_SECONDS.items(), key=lambda unit: unit[1], reverse=True):
        if exact and exact % length == 0:
            count = int(exact / length)
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"{seconds:g} seconds"


def format_size(size: int) -> str:
    """The size with about three digits, for people: 1234567 is '1.23 MB'."""
    for unit, length in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= length:
            return f"{size / length:.3g} {unit}" if size < 999.5 * length else f"{size / length:.0f} {unit}"
    return f"{size} B"


def _parts(text: str) -> list[tuple[Decimal, str]]:
    """The numbers and units of the whole text; empty if anything else stands in it."""
    parts = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return []
        parts.append((Decimal(part["number"]), part["unit"].lower()))
        at = part.end()
    return parts


def _length(unit: str, units: Mapping[str, Decimal]) -> Decimal | None:
    """How long or large the unit is, also for its plural; None for one that is not in the table."""
    return units.get(unit, units.get(unit.removesuffix("s")))
