"""Positions in files, and errors with the place in the file where they happened."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.contracts import Position
from penstock.errors import DeclarationError, RowError


def position_after(number: int, line: int) -> Position:
    """The position after a record, given by its number and the line where it starts."""
    return {"records": number, "line": line}


def record_count(position: Position | None) -> int:
    """How many records of an input come before a position."""
    count = position.get("records") if isinstance(position, Mapping) else 0 if position is None else None
    if not isinstance(count, int):
        raise DeclarationError(f"{position!r:.200} is not a position in a file", hint="use another name for this input")
    return count


def line_number(position: Position) -> int:
    """The line where the last record before a position starts; 0 if unknown."""
    line = position.get("line") if isinstance(position, Mapping) else None
    return line if isinstance(line, int) else 0


def with_place(error: RowError, place: str) -> RowError:
    """The error with its place, as in "line 7". The topic numbers the rows it was given, which was one."""
    message, found = re.subn(r"\brow 0\b", place, error.message, count=1)
    return RowError(message if found else f"{place}: {message}", hint=error.hint)
