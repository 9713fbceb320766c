"""The records of an input, JSON lines or CSV, as rows for a topic. A bad one carries its problem; reading continues.

Values are brought into the topic's types as far as the format needs it; whether they fit is for the topic to say.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import pyarrow as pa

from penstock.capture.files.lines import Lines
from penstock.capture.files.values import ReadValue, as_it_is, has_decimals, json_reader, text_reader
from penstock.errors import DeclarationError, RowError
from penstock.log import closest

Row = dict[str, object]

# A field may be as large as the largest append; the csv module's own limit is 128 kB.
MOST_FIELD_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Record:
    """One record: its number (from 1), the line it begins in, its text, and its row or what is wrong with it."""

    number: int
    line: int
    text: str
    row: Row
    problem: RowError | None = None


def json_records(lines: Lines, schema: pa.Schema, *, where: str) -> Iterator[Record]:
    """One JSON object per line. Numbers keep all their digits where the topic has decimals."""
    exact = any(has_decimals(field.type) for field in schema)
    readers = {field.name: json_reader(field.type) for field in schema}
    changing = {name: read for name, read in readers.items() if read is not as_it_is}

    def parse(text: str) -> Row:
        row = json.loads(text.rstrip("\r\n"), parse_float=Decimal if exact else None)
        if not isinstance(row, dict):
            raise _BadRecordError(f"is not a JSON object; found {_json_kind(row)}", hint="give one object per line")
        return row | {name: _read(read, name, row[name]) for name, read in changing.items() if name in row}

    number = 0
    for text in lines:
        if text.strip():
            number += 1
            yield _record(Record(number, lines.number, text, {}), partial(parse, text), where)


def csv_records(lines: Lines, schema: pa.Schema, *, where: str) -> Iterator[Record]:
    """CSV whose first line names the columns.

    An empty field is null; in a string column that cannot be null it is the empty string.
    """
    csv.field_size_limit(MOST_FIELD_BYTES)
    taken: list[str] = []
    parsed = csv.reader(_noted(lines, taken), strict=True)
    names = _header(next(parsed, []), schema, where)
    columns = [(name, schema.field(name)) for name in names]
    readers = {name: text_reader(field.type) for name, field in columns}
    empty = {name: None if field.nullable or not pa.types.is_string(field.type) else "" for name, field in columns}

    def parse(fields: list[str]) -> Row:
        if len(fields) != len(names):
            raise _BadRecordError(f"has {len(fields)} fields; the header has {len(names)}")
        pairs = zip(names, fields, strict=True)
        return {name: _read(readers[name], name, text) if text else empty[name] for name, text in pairs}

    number = 0
    while True:
        taken.clear()
        line = lines.number + 1
        fields, problem = _next_fields(parsed)
        if fields is None and problem is None:
            return
        if fields or problem:
            number += 1
            record = Record(number, line, "".join(taken), {})
            if problem:
                record.problem = RowError(f"{where}: line {line} is not CSV; {problem}")
                yield record
            else:
                yield _record(record, partial(parse, fields or []), where)


class _BadRecordError(Exception):
    """What is wrong with a record, to be put after its line number."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def _record(record: Record, parse: Callable[[], Row], where: str) -> Record:
    """The record with its row, or with its problem."""
    try:
        if not record.text.isascii():
            record.text.encode()
        record.row = parse()
    except UnicodeEncodeError:
        record.problem = RowError(f"{where}: line {record.line} is not UTF-8")
    except json.JSONDecodeError as error:
        record.problem = RowError(
            f"{where}: line {record.line} is not JSON; {error.msg} (at character {error.pos + 1})",
            hint="give one JSON object per line, or use --format csv",
        )
    except _BadRecordError as bad:
        record.problem = RowError(f"{where}: line {record.line} {bad}", hint=bad.hint)
    return record


def _read(read: ReadValue, name: str, value: object) -> object:
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        found = str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}..."
        raise _BadRecordError(f"has a bad value in column '{name}'; found {found!r}", hint=str(error)) from None


def _json_kind(value: object) -> str:
    """What JSON calls a value that is not an object."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "an array" if isinstance(value, list) else "a string" if isinstance(value, str) else "a number"


def _noted(lines: Lines, taken: list[str]) -> Iterator[str]:
    for text in lines:
        taken.append(text)
        yield text


def _next_fields(parsed: Iterator[list[str]]) -> tuple[list[str] | None, str | None]:
    """The fields of the next record, or what is wrong with it; neither at the end."""
    try:
        return next(parsed, None), None
    except csv.Error as error:
        return None, str(error)


def _header(names: list[str], schema: pa.Schema, where: str) -> list[str]:
    names = [name.strip() for name in names]
    for name in names:
        if name not in schema.names:
            raise DeclarationError(
                f"{where}: the first line of the CSV names a column that is not in the schema; found '{name}'",
                hint=closest(name, schema.names) or f"the columns are: {', '.join(schema.names)}",
            )
    if len(set(names)) < len(names):
        raise DeclarationError(f"{where}: the first line of the CSV names a column twice; found {', '.join(names)}")
    return names
