"""Lengths of time as SQL writes them: `'10 seconds'`, `INTERVAL 10 SECONDS`, `INTERVAL '10' SECOND`."""

from __future__ import annotations

import re

from penstock.errors import DeclarationError
from penstock.flow.windows import microseconds
from penstock.sql.reader import Reader
from penstock.sql.text import Span, is_literal, literal

_NUMBER = re.compile(r"\d+(\.\d+)?")
_HINT = "write '10 seconds', INTERVAL 10 SECONDS or INTERVAL '10' SECOND"


def read_duration(reader: Reader) -> str:
    """The next tokens as a length of time, in words."""
    token = reader.token()
    if token is not None and is_literal(token):
        return literal(reader.text("a length of time"))
    if not reader.accept("interval"):
        raise reader.unexpected("a length of time", _HINT)
    words = _with_unit(reader)
    while words and (token := reader.token()) is not None and _NUMBER.fullmatch(token.raw):
        words += _with_unit(reader)
    if not words or reader.peek() == "to":
        raise reader.unexpected("a length of time behind INTERVAL", _HINT)
    return " ".join(words)


def _with_unit(reader: Reader) -> list[str]:
    """A number and its unit; or a text, which may have its units inside."""
    token = reader.token()
    if token is None or not (is_literal(token) or _NUMBER.fullmatch(token.raw)):
        return []
    reader.take()
    value = literal(token) if is_literal(token) else token.raw
    if not _NUMBER.fullmatch(value.strip()):
        return [value]
    unit = reader.token()
    if unit is None or not unit.raw.isalpha():
        raise reader.unexpected("a unit, such as SECONDS", _HINT)
    reader.take()
    return [value, unit.raw]


def duration(span: Span, what: str) -> str:
    """All of the span as a length of time, in words that Penstock knows."""
    reader = Reader(span, what)
    words = read_duration(reader)
    reader.end(_HINT)
    with span.declaring(what):
        microseconds(words, "length")
    return words


def interval(span: Span) -> int | None:
    """The microseconds of an INTERVAL; None if it is something else."""
    if not span or span.keywords[0] != "interval":
        return None
    try:
        return microseconds(duration(span, "interval"), "interval")
    except DeclarationError:
        return None
