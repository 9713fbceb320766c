"""Reads the beginning of an input and guesses its schema. The stream can be rewound afterwards: nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from penstock.capture.files.csv_records import CsvTexts, field_names
from penstock.capture.files.guess import Guess, GuessedSchema, guessed_schema
from penstock.capture.files.json_records import object_decoder
from penstock.capture.files.lines import ByteStream, Lines, LongLineError
from penstock.capture.files.options import FileOptions
from penstock.capture.files.parquet import chosen_columns, open_parquet
from penstock.capture.files.records import BadRecordError
from penstock.errors import DeclarationError

SAMPLE_RECORDS = 1_000
SAMPLE_BYTES = 8 * 1024 * 1024
# A pipe that pauses for so long is sampled as far as it has come.
PAUSE_SECONDS = 1.0


def guess_schema(
    stream: ByteStream, options: FileOptions, *, where: str, key: Sequence[str] = (), time: str | None = None
) -> GuessedSchema:
    """Guess from the first records: at most 1,000, or what 8 MiB hold, or what comes before a pipe pauses.

    Records that cannot be read are passed over; DeclarationError if none can. `time` names the column of the event
    time, which becomes a timestamp if it has dates, or numbers and `time_unit` says what they count.
    """
    guesses: dict[str, Guess] = {}
    lines, records = Lines(stream), 0
    sample = _sample_json(lines, options) if options.csv is None else _sample_csv(lines, options, where)
    for row in islice(sample, SAMPLE_RECORDS):
        records += 1
        for name, value in row.items():
            guess = guesses.setdefault(name, Guess())
            if options.csv is None:
                guess.add(value)
            elif isinstance(value, str) and (value not in options.csv.nulls if options.csv.nulls else value):
                guess.add_text(value.strip())
    if not guesses:
        raise DeclarationError(
            f"{where}: no schema can be guessed; no row was found at the beginning of the input",
            hint="check --format, or create the topic by hand: penstock topic create",
        )
    needed = [*key, *([time] if time else [])]
    try:
        guessed = guessed_schema(guesses, records, needed=needed)
    except UnicodeEncodeError:
        raise DeclarationError(f"{where}: a column has a name that is not valid Unicode") from None
    return _with_time(guessed, time, options.time_unit is not None)


def parquet_schema(
    path: Path, options: FileOptions, *, key: Sequence[str] = (), time: str | None = None
) -> GuessedSchema:
    """The schema that a Parquet file has, with types that topics have."""
    file = open_parquet(path)
    names = chosen_columns(file.schema_arrow.names, options.columns, path)
    needed = {*key, *([time] if time else [])}
    fields = [
        pa.field(name, _signed(file.schema_arrow.field(name).type), nullable=name not in needed) for name in names
    ]
    return _with_time(GuessedSchema(pa.schema(fields), file.metadata.num_rows), time, options.time_unit is not None)


def _sample_json(lines: Lines, options: FileOptions) -> Iterator[dict[str, object]]:
    decode = object_decoder(exact=False).decode
    for text in _sampled_lines(lines):
        try:
            row = decode(text)
        except (BadRecordError, ValueError, ArithmeticError, RecursionError):
            continue
        if isinstance(row, dict):
            yield {name: value for name, value in row.items() if not options.columns or name in options.columns}


def _sample_csv(lines: Lines, options: FileOptions, where: str) -> Iterator[dict[str, object]]:
    assert options.csv is not None
    texts = CsvTexts(lines, options.csv)
    names = field_names(texts, options.columns, where)
    size = 0
    for _, text, fields, _ in texts:
        if len(fields) == len(names):
            chosen = zip(names, fields, strict=True)
            yield {name: value for name, value in chosen if name and (not options.columns or name in options.columns)}
        size += len(text)
        if size > SAMPLE_BYTES or lines.is_idle(PAUSE_SECONDS):
            return


def _sampled_lines(lines: Lines) -> Iterator[str]:
    size = 0
    while size <= SAMPLE_BYTES:
        try:
            text = next(lines)
        except StopIteration:
            return
        except LongLineError:
            continue
        size += len(text)
        yield text
        if lines.is_idle(PAUSE_SECONDS):
            return


def _with_time(guessed: GuessedSchema, time: str | None, has_unit: bool) -> GuessedSchema:
    """The schema with a timestamp for the event time, where its values can be read as such."""
    if time is None or time not in guessed.schema.names:
        return guessed
    index = guessed.schema.names.index(time)
    column = guessed.schema.field(index)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not has_unit:
        raise DeclarationError(
            f"column '{time}': it has numbers, and the event time is a timestamp",
            hint="say what they count since 1970: --time-unit s, ms, us or ns",
        )
    if not is_number and not pa.types.is_date(column.type):
        return guessed
    return replace(guessed, schema=guessed.schema.set(index, column.with_type(pa.timestamp("us", "UTC"))))


def _signed(type_: pa.DataType) -> pa.DataType:
    """A type that topics have, for those that they lack. A number that it cannot hold makes a bad row."""
    if pa.types.is_unsigned_integer(type_):
        return {8: pa.int16(), 16: pa.int32()}.get(type_.bit_width, pa.int64())
    return pa.string() if pa.types.is_null(type_) else type_
