"""The records of an input, JSON lines or CSV, as rows for a topic. A bad record carries its problem; reading continues.

Values are converted to the topic's types as far as the format requires. The topic decides whether they fit.
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
from penstock.capture.files.value_readers import ReadValue, has_decimals, identity, json_reader, text_reader
from penstock.errors import DeclarationError, RowError
from penstock.suggest import closest

Row = dict[str, object]

# A field may be as large as the largest append; the csv module's own limit is 128 kB.
MOST_FIELD_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Record:
    """One record: its number (from 1), the line where it starts, its text, and its row or its problem."""

    number: int
    line: int
    text: str
    row: Row
    problem: RowError | None = None


def json_records(lines: Lines, schema: pa.Schema, *, where: str) -> Iterator[Record]:
    """Read one JSON object per line. Numbers keep all their digits if the topic has decimals."""
    exact = any(has_decimals(field.type) for field in schema)
    readers = {field.name: json_reader(field.type) for field in schema}
    converters = {name: read for name, read in readers.items() if read is not identity}

    def parse(text: str) -> Row:
        row = json.loads(text.rstrip("\r\n"), parse_float=Decimal if exact else None)
        if not isinstance(row, dict):
            raise _BadRecordError(f"is not a JSON object; found {_json_kind(row)}", hint="give one object per line")
        return row | {name: _read_value(read, name, row[name]) for name, read in converters.items() if name in row}

    number = 0
    for text in lines:
        if text.strip():
            number += 1
            yield _fill_record(Record(number, lines.number, text, {}), partial(parse, text), where)


def csv_records(lines: Lines, schema: pa.Schema, *, where: str) -> Iterator[Record]:
    """Read CSV whose first line names the columns.

    An empty field is null; in a string column that cannot be null it is the empty string.
    """
    csv.field_size_limit(MOST_FIELD_BYTES)
    raw_lines: list[str] = []
    parsed = csv.reader(_tee_lines(lines, raw_lines), strict=True)
    names = _column_names(next(parsed, []), schema, where)
    columns = [(name, schema.field(name)) for name in names]
    readers = {name: text_reader(field.type) for name, field in columns}
    empty = {name: None if field.nullable or not pa.types.is_string(field.type) else "" for name, field in columns}

    def parse(fields: list[str]) -> Row:
        if len(fields) != len(names):
            raise _BadRecordError(f"has {len(fields)} fields; the header has {len(names)}")
        pairs = zip(names, fields, strict=True)
        return {name: _read_value(readers[name], name, text) if text else empty[name] for name, text in pairs}

    number = 0
    while True:
        raw_lines.clear()
        line = lines.number + 1
        fields, problem = _next_fields(parsed)
        if fields is None and problem is None:
            return
        if fields or problem:
            number += 1
            record = Record(number, line, "".join(raw_lines), {})
            if problem:
                record.problem = RowError(f"{where}: line {line} is not CSV; {problem}")
                yield record
            else:
                yield _fill_record(record, partial(parse, fields or []), where)


class _BadRecordError(Exception):
    """What is wrong with a record, to be put after its line number."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def _fill_record(record: Record, parse: Callable[[], Row], where: str) -> Record:
    """Set the row of a record, or its problem."""
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


def _read_value(read: ReadValue, name: str, value: object) -> object:
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        found = str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}..."
        raise _BadRecordError(f"has a bad value in column '{name}'; found {found!r}", hint=str(error)) from None


def _json_kind(value: object) -> str:
    """The JSON name of a value that is not an object."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "an array" if isinstance(value, list) else "a string" if isinstance(value, str) else "a number"


def _tee_lines(lines: Lines, raw_lines: list[str]) -> Iterator[str]:
    """The same lines, each also appended to `raw_lines`."""
    for text in lines:
        raw_lines.append(text)
        yield text


def _next_fields(parsed: Iterator[list[str]]) -> tuple[list[str] | None, str | None]:
    """The fields of the next record, or its problem; neither at the end."""
    try:
        return next(parsed, None), None
    except csv.Error as error:
        return None, str(error)


def _column_names(header: list[str], schema: pa.Schema, where: str) -> list[str]:
    """The columns that the header names. DeclarationError if one is unknown or repeated."""
    names = [name.strip() for name in header]
    for name in names:
        if name not in schema.names:
            raise DeclarationError(
                f"{where}: the first line of the CSV names a column that is not in the schema; found '{name}'",
                hint=closest(name, schema.names) or f"the columns are: {', '.join(schema.names)}",
            )
    if len(set(names)) < len(names):
        raise DeclarationError(f"{where}: the first line of the CSV names a column twice; found {', '.join(names)}")
    return names
