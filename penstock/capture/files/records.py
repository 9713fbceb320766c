"""The records of an input. A bad record carries its problem, and reading continues: no input raises anything else."""

from __future__ import annotations

import json
import reprlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from penstock.capture.files.value_readers import ReadValue
from penstock.errors import RowError

Row = dict[str, object]

# How an input begins that is not text at all, as it looks when it is read as text.
_BEGINNINGS = (
    (b"\xff\xfe", "this looks like UTF-16; convert it with: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "this looks like UTF-16; convert it with: iconv -f UTF-16 -t UTF-8"),
    (b"\x1f\x8b", "this looks like gzip; read the file itself with --file, or decompress it with: gzip -dc"),
    (b"\x28\xb5\x2f\xfd", "this looks like Zstandard; decompress it with: zstd -dc"),
    (b"PAR1", "this looks like Parquet; read it with --file and --format parquet"),
)


@dataclass(slots=True)
class Record:
    """One record: its number (from 1), the line where it starts, its text, and its row or its problem."""

    number: int
    line: int
    text: str
    row: Row
    problem: RowError | None = None


class BadRecordError(Exception):
    """What is wrong with a record, to be put after its line number."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def fill_record(record: Record, parse: Callable[[], Row], where: str) -> Record:
    """Set the row of a record, or its problem."""
    try:
        if not record.text.isascii():
            record.text.encode()
        record.row = parse()
    except (BadRecordError, ValueError, ArithmeticError, RecursionError) as error:
        bad = error if isinstance(error, BadRecordError) else _describe(error)
        record.problem = RowError(f"{where}: line {record.line} {bad}", hint=_other_format(record) or bad.hint)
    return record


def _other_format(record: Record) -> str | None:
    """What to do about an input that is not text at all, if its first line looks like that."""
    beginning = record.text[:8].encode(errors="surrogateescape") if record.line == 1 else b""
    return next((hint for start, hint in _BEGINNINGS if beginning.startswith(start)), None)


def read_value(read: ReadValue, name: str, value: object) -> object:
    """A value as the topic's type. BadRecordError if it cannot be one."""
    if value is None:
        return None
    try:
        return read(value)
    except (ValueError, ArithmeticError, RecursionError) as error:
        problem = f"has a bad value in column {name!r}; found {shown_value(value)}"
        raise BadRecordError(problem, hint=str(error)) from None


def shown_value(value: object) -> str:
    """A value, short enough for a message."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}...")
    return str(value) if isinstance(value, Decimal) else reprlib.repr(value)


def _describe(error: Exception) -> BadRecordError:
    """What went wrong inside of a parser, in words for the user."""
    if isinstance(error, UnicodeEncodeError):
        return BadRecordError("is not UTF-8")
    if isinstance(error, json.JSONDecodeError):
        return BadRecordError(
            f"is not JSON; {error.msg} (at character {error.pos + 1})",
            hint="give one JSON object per line, or use --format csv",
        )
    if isinstance(error, RecursionError):
        return BadRecordError("is nested too deeply", hint="give at most a few hundred levels of arrays and objects")
    if isinstance(error, ArithmeticError):
        return BadRecordError("has a number that is out of range")
    return BadRecordError(f"has a number with more than {sys.get_int_max_str_digits():,} digits")
