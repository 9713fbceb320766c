"""CSV as records. The header names the columns, or the caller does; fields are read by the topic's types."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.capture.files.lines import MOST_LINE_BYTES, Lines, LongLineError
from penstock.capture.files.options import CsvOptions
from penstock.capture.files.records import BadRecordError, Record, Row, fill_record, read_value
from penstock.capture.files.value_readers import ReadValue, TimeUnit, text_reader
from penstock.errors import DeclarationError, RowError
from penstock.schema.ddl import Field
from penstock.suggest import closest

_PROBLEMS = {
    "new-line character": "there is a carriage return inside of it",
    "unexpected end": "a quoted field is not closed",
    "field larger": "a field is larger than 64 MiB; is a quote not closed?",
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that is taken: which field it is, how its text is read, and what an empty field means."""

    index: int
    name: str
    read: ReadValue
    blank: object


def csv_records(
    lines: Lines,
    schema: pa.Schema,
    *,
    where: str,
    options: CsvOptions | None = None,
    columns: Sequence[str] = (),
    time_unit: TimeUnit | None = None,
) -> Iterator[Record]:
    """Read CSV, or some columns of it. A record may have several lines, where a quoted field does.

    An empty field is null; in a string column that cannot be null it is the empty string. Where other texts are null,
    it is the empty string in every string column.
    """
    options = options or CsvOptions()
    texts = CsvTexts(lines, options)
    names = field_names(texts, columns, where)
    taken = [
        _column(index, schema.field(name), options.nulls, time_unit)
        for index, name in _taken_fields(names, columns, schema, where=where, named_by_header=options.header)
    ]
    plain = [(column.name, column.read, column.blank) for column in taken]
    whole = [column.index for column in taken] == list(range(len(names)))

    def parse(fields: list[str]) -> Row:
        if len(fields) != len(names):
            expected = "the header has" if options.header else "--columns names"
            raise BadRecordError(f"has {len(fields)} fields; {expected} {len(names)}")
        chosen = fields if whole else [fields[column.index] for column in taken]
        try:
            return {
                name: read(text) if text else blank for (name, read, blank), text in zip(plain, chosen, strict=True)
            }
        except (ValueError, ArithmeticError, RecursionError):
            for column, text in zip(taken, chosen, strict=True):
                read_value(column.read, column.name, text or None)
            raise

    for number, (line, text, fields, problem) in enumerate(texts, start=1):
        record = Record(number, line, text, {})
        if problem:
            record.problem = RowError(f"{where}: line {line} {problem}")
            yield record
        else:
            yield fill_record(record, partial(parse, fields), where)


class CsvTexts:
    """Splits lines into records: each has its first line, its whole text, and its fields or its problem."""

    def __init__(self, lines: Lines, options: CsvOptions) -> None:
        csv.field_size_limit(MOST_LINE_BYTES)  # the csv module's own limit is 128 kB
        self.options = options
        self._lines = lines
        self._raw_lines: list[str] = []
        self._parsed = csv.reader(self._tee_lines(), delimiter=options.delimiter, strict=True)

    def __iter__(self) -> Iterator[tuple[int, str, list[str], str | None]]:
        raw_lines, lines = self._raw_lines, self._lines
        while True:
            raw_lines.clear()
            line = lines.number + 1
            fields, problem = self.next_fields()
            if fields is None and problem is None:
                return
            if fields or problem:
                yield line, "".join(raw_lines), fields or [], problem

    def next_fields(self) -> tuple[list[str] | None, str | None]:
        """The fields of the next record, or its problem; neither at the end."""
        try:
            return next(self._parsed, None), None
        except LongLineError as error:
            self._raw_lines.append(error.text)
            # A generator ends with its first exception, so the rest is read by a new one.
            self._parsed = csv.reader(self._tee_lines(), delimiter=self.options.delimiter, strict=True)
            return None, str(error)
        except csv.Error as error:
            known = (text for start, text in _PROBLEMS.items() if str(error).startswith(start))
            return None, f"is not CSV; {next(known, str(error))}"

    def _tee_lines(self) -> Iterator[str]:
        """The lines, each also appended to `_raw_lines`."""
        for text in self._lines:
            self._raw_lines.append(text)
            yield text


def field_names(texts: CsvTexts, columns: Sequence[str], where: str) -> list[str]:
    """The names of the fields, from the header, which is read here, or else from `columns`."""
    if not texts.options.header:
        return list(columns)
    header, problem = texts.next_fields()
    if problem:
        raise DeclarationError(f"{where}: the first line, which should name the columns, {problem}")
    names = [name.strip() for name in header or []]
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise DeclarationError(f"{where}: the first line, which should name the columns, is not UTF-8") from None
    for name in columns:
        if name not in names:
            raise DeclarationError(
                f"{where}: the first line of the CSV does not name a column '{name}'; found {', '.join(names)}",
                hint=closest(name, names),
            )
    return names


def _taken_fields(
    names: Sequence[str], columns: Sequence[str], schema: pa.Schema, *, where: str, named_by_header: bool
) -> list[tuple[int, str]]:
    """The fields that are taken, with their places. DeclarationError if one is unknown or repeated."""
    if named_by_header:
        source, taken = (
            "the first line of the CSV",
            [(i, name) for i, name in enumerate(names) if not columns or name in columns],
        )
    else:
        source, taken = "--columns", [(i, name) for i, name in enumerate(names) if name]
    chosen = [name for _, name in taken]
    for name in chosen:
        if name not in schema.names:
            known = f"the columns are: {', '.join(schema.names)}; take only some of the file's columns with --columns"
            raise DeclarationError(
                f"{where}: {source} names a column that is not in the schema; found '{name}'",
                hint=_delimiter_hint(names, schema.names) or closest(name, schema.names) or known,
            )
    if len(set(chosen)) < len(chosen):
        raise DeclarationError(f"{where}: {source} names a column twice; found {', '.join(chosen)}")
    return taken


def _delimiter_hint(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The delimiter that the file seems to have, if its first line was read as a single column."""
    delimiters = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
    for delimiter, written in delimiters.items():
        parts = [part.strip().strip('"') for part in names[0].split(delimiter)]
        if len(names) == 1 and len(parts) > 1 and set(parts) & set(known):
            return f"the file seems to have another delimiter: --delimiter {written}"
    return None


def _column(index: int, field: Field, nulls: Sequence[str], time_unit: TimeUnit | None) -> _Column:
    is_text = pa.types.is_string(field.type)
    read = text_reader(field.type, time_unit)
    if not nulls:
        return _Column(index, field.name, read, "" if is_text and not field.nullable else None)
    null_texts = frozenset(nulls)
    blank = "" if is_text and "" not in null_texts else None
    return _Column(index, field.name, lambda text: None if text in null_texts else read(text), blank)
