"""JSON lines as records: one object per line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from decimal import Decimal
from functools import partial

import pyarrow as pa

from penstock.capture.files.lines import Lines, LongLineError
from penstock.capture.files.records import BadRecordError, Record, Row, fill_record, read_value
from penstock.capture.files.value_readers import TimeUnit, has_decimals, identity, json_reader
from penstock.errors import RowError

_BLANKS = " \t\r\n"  # what JSON takes for blank


def json_records(
    lines: Lines,
    schema: pa.Schema,
    *,
    where: str,
    columns: Collection[str] = (),
    time_unit: TimeUnit | None = None,
) -> Iterator[Record]:
    """Read one JSON object per line, or only some of its columns.

    Numbers keep all their digits if the topic has decimals. Values are converted to the topic's types as far as JSON
    requires it; the topic decides whether they fit.
    """
    decode = object_decoder(exact=any(has_decimals(field.type) for field in schema)).raw_decode
    readers = {field.name: json_reader(field.type, time_unit) for field in schema}
    converters = [(name, read) for name, read in readers.items() if read is not identity]

    def parse(text: str) -> Row:
        stripped = text.strip(_BLANKS)
        try:
            row, end = decode(stripped)
            if end < len(stripped):
                raise json.JSONDecodeError("Extra data", stripped, end)
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(error.msg, text, error.pos + text.index(stripped)) from None
        if not isinstance(row, dict):
            raise BadRecordError(f"is not a JSON object; found {_json_kind(row)}", hint="give one object per line")
        if columns:
            row = {name: value for name, value in row.items() if name in columns}
        for name, read in converters:
            if name in row:
                row[name] = read_value(read, name, row[name])
        return row

    for number, (text, problem) in enumerate(_texts(lines, where), start=1):
        record = Record(number, lines.number, text, {}, problem)
        yield record if problem else fill_record(record, partial(parse, text), where)


def object_decoder(*, exact: bool) -> json.JSONDecoder:
    """A decoder of JSON that refuses repeated keys. With `exact`, numbers with a fraction become decimals.

    NaN and infinity, which are not JSON but are often found in it, become decimals too, so that they can be
    distinguished from a number that is too large for a double.
    """
    return json.JSONDecoder(
        parse_float=Decimal if exact else None, parse_constant=Decimal, object_pairs_hook=_unrepeated
    )


def _unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRecordError(f"has a key twice; found {twice!r}", hint="give each key once")
    return members


def _texts(lines: Lines, where: str) -> Iterator[tuple[str, RowError | None]]:
    """The lines that are not blank, and the problem of those that are too long."""
    while True:
        try:
            text = next(lines)
        except StopIteration:
            return
        except LongLineError as error:
            yield error.text, RowError(f"{where}: line {lines.number} {error}")
            continue
        if not text.isspace():
            yield text, None


def _json_kind(value: object) -> str:
    """The JSON name of a value that is not an object."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "an array" if isinstance(value, list) else "a string" if isinstance(value, str) else "a number"
