"""A stream of JSON lines or CSV as a source. Its position is the number of the last record and the line it starts in.

Records are counted from the beginning of the input, including bad ones. So the input may have grown when it is read
again, and its records may be divided into items differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from penstock.capture.files.earlier_records import EarlierRecords
from penstock.capture.files.lines import ByteStream, Lines
from penstock.capture.files.records import Record, Row, csv_records, json_records
from penstock.contracts import Captured, Position, Rows, SourceTable
from penstock.errors import DeclarationError, RowError

# How often a source that waits for input gives a heartbeat.
HEARTBEAT_SECONDS = 1.0

Fit: TypeAlias = Callable[[Sequence[Row]], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How an input is read.

    - `fit` converts rows to those of their topic, or raises RowError. Without it rows are given as they are, and the
      topic refuses bad ones.
    - `on_bad` is called with every bad record, which is then left out. Without it the first bad record is raised, after
      everything before it was given.
    - `earlier` knows which records an earlier version of Penstock has stored.
    """

    csv: bool = False
    batch_rows: int = 5_000
    deletes: bool = False  # the rows are keys to be deleted
    fit: Fit | None = None
    on_bad: Callable[[Record], None] | None = None
    on_bytes: Callable[[int], None] = lambda count: None
    earlier: EarlierRecords | None = None


class FileSource:
    """One stream with one table. `skipped_rows` counts the rows that were left out because they are already stored."""

    def __init__(self, stream: ByteStream, table: SourceTable, options: FileOptions | None = None) -> None:
        if table.schema is None:
            raise DeclarationError(f"table '{table.name}': a file is read by a schema, and none was given")
        self.skipped_rows = 0
        self.last_line = 0  # of the skipped records
        self.header = ""  # the first line, which names the columns of a CSV
        self._stream = stream
        self._table = table
        self._schema = table.schema
        self._options = options or FileOptions()
        self._was_read = False

    def tables(self) -> Sequence[SourceTable]:
        return [self._table]

    def read(self, after: Position | None) -> Iterator[Captured]:
        """Records after a position, in items of at most `batch_rows`; items are shorter where the input pauses."""
        stored_count = record_count(after)
        position = after
        for chunk in self._chunks(self._lines()):
            new = [record for record in chunk if record.number > stored_count]
            self._skip_records(chunk[: len(chunk) - len(new)])
            taken, rows = self._good_rows(new)
            position = position_after(taken[-1]) if taken else position
            yield Captured(self._table.name, rows, [True] * len(rows) if self._options.deletes else None, position)
            if len(taken) < len(new):
                raise record_error(new[len(taken)])

    def close(self) -> None:
        self._stream.close()

    def _lines(self) -> Lines:
        if self._was_read:
            if not self._stream.seekable():
                raise DeclarationError(
                    f"table '{self._table.name}': its input cannot be read a second time",
                    hint="read a file instead of a pipe",
                )
            self._stream.seek(0)
        self._was_read = True
        return Lines(self._stream, progress=self._options.on_bytes)

    def _chunks(self, lines: Lines) -> Iterator[list[Record]]:
        """Records in chunks of at most `batch_rows`, and empty chunks as heartbeats while the input pauses."""
        read = csv_records if self._options.csv else json_records
        records = read(lines, self._schema, where=f"topic '{self._table.name}'")
        chunk: list[Record] = []
        while True:
            if chunk and (len(chunk) >= self._options.batch_rows or lines.is_idle()):
                yield chunk
                chunk = []
            while not chunk and lines.is_idle(HEARTBEAT_SECONDS):
                yield []
            record = next(records, None)
            if self._options.csv:
                self.header = lines.first_line
            if record is None:
                break
            chunk.append(record)
        if chunk:
            yield chunk

    def _skip_records(self, records: Sequence[Record]) -> None:
        """Count records that are already stored. Only problems that were found without the topic are reported."""
        for record in records:
            if record.problem is not None:
                self._report(record)
            else:
                self.skipped_rows += 1
            self.last_line = record.line

    def _good_rows(self, records: Sequence[Record]) -> tuple[Sequence[Record], Rows]:
        """The records that are taken, all of them or those before the first bad one, and the rows of the good ones.

        Bad records that are left out are reported here, before their neighbours are stored, so none goes unnoticed.
        """
        taken = self._before_first_bad(records)
        try:
            rows = self._fitted_rows(taken)
        except RowError:
            self._find_problems(taken)
            taken = self._before_first_bad(taken)
            rows = self._fitted_rows(taken)
        for record in taken:
            if record.problem is not None:
                self._report(record)
        return taken, self._without_earlier_rows([record for record in taken if record.problem is None], rows)

    def _before_first_bad(self, records: Sequence[Record]) -> Sequence[Record]:
        if self._options.on_bad is not None:
            return records
        first = next((number for number, record in enumerate(records) if record.problem), len(records))
        return records[:first]

    def _fitted_rows(self, records: Sequence[Record]) -> Rows:
        rows = [record.row for record in records if record.problem is None]
        return self._options.fit(rows) if self._options.fit and rows else rows

    def _find_problems(self, records: Sequence[Record]) -> None:
        """Check each record on its own, and set the problem of those that the topic refuses."""
        for record in records:
            if record.problem is None:
                try:
                    self._fitted_rows([record])
                except RowError as error:
                    record.problem = _with_line(error, record.line)

    def _without_earlier_rows(self, records: Sequence[Record], rows: Rows) -> Rows:
        """The rows without those that an earlier version has stored."""
        earlier = self._options.earlier
        if earlier is None or not records or records[0].number > earlier.newest:
            return rows
        is_new = earlier.is_new([record.number for record in records], rows)
        self.skipped_rows += is_new.count(False)
        if isinstance(rows, Sequence):
            return [row for row, new in zip(rows, is_new, strict=True) if new]
        return rows.filter(pa.array(is_new))

    def _report(self, record: Record) -> None:
        if self._options.on_bad is None:
            raise record_error(record)
        self._options.on_bad(record)


def position_after(record: Record) -> Position:
    return {"records": record.number, "line": record.line}


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


def record_error(record: Record) -> RowError:
    return record.problem or RowError(f"line {record.line} was refused")


def _with_line(error: RowError, line: int) -> RowError:
    """The error with a line number. The topic numbers the rows it was given, which was one; users count lines."""
    message, found = re.subn(r"\brow 0\b", f"line {line}", error.message, count=1)
    return RowError(message if found else f"line {line}: {message}", hint=error.hint)
