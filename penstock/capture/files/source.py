"""A stream of JSON lines or CSV as a source. Its position is the number of the last record and the line it starts in.

Records are counted from the beginning of the input, including bad ones. So the input may have grown when it is read
again, and its records may be divided into items differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.capture.files.csv_records import csv_records
from penstock.capture.files.json_records import json_records
from penstock.capture.files.lines import ByteStream, Lines
from penstock.capture.files.options import FileOptions
from penstock.capture.files.positions import position_after, record_count, with_place
from penstock.capture.files.records import Record
from penstock.contracts import Captured, Position, Rows, SourceTable
from penstock.errors import DeclarationError, RowError

# How often a source that waits for input gives a heartbeat.
HEARTBEAT_SECONDS = 1.0
# Records of so many characters are given at once, however few they are, so that long lines do not fill the memory.
CHUNK_CHARACTERS = 16 * 1024 * 1024


class FileSource:
    """One stream with one table. `skipped_rows` counts the rows that were left out because they are already stored."""

    place = "line"  # what messages call the number of a record

    def __init__(self, stream: ByteStream, table: SourceTable, options: FileOptions | None = None) -> None:
        if table.schema is None:
            raise DeclarationError(f"table '{table.name}': a file is read by a schema, and none was given")
        self.skipped_rows = 0
        self.last_line = 0  # of the skipped records
        self._stream = stream
        self._table = table
        self._schema = table.schema
        self._options = options or FileOptions()
        self._lines: Lines | None = None

    def tables(self) -> Sequence[SourceTable]:
        return [self._table]

    def read(self, after: Position | None) -> Iterator[Captured]:
        """Records after a position, in items of at most `batch_rows`; items are shorter where the input pauses."""
        stored_count = record_count(after)
        position = after
        for chunk in self._chunks(self._begin()):
            new = [record for record in chunk if record.number > stored_count]
            self._skip_records(chunk[: len(chunk) - len(new)])
            taken, rows = self._good_rows(new)
            position = position_after(taken[-1].number, taken[-1].line) if taken else position
            yield Captured(self._table.name, rows, [True] * len(rows) if self._options.deletes else None, position)
            if len(taken) < len(new):
                raise record_error(new[len(taken)])

    def close(self) -> None:
        self._stream.close()

    @property
    def header(self) -> str:
        """The first line of a CSV, as far as it names the columns."""
        has_header = self._options.csv is not None and self._options.csv.header
        return self._lines.first_line if self._lines is not None and has_header else ""

    def _begin(self) -> Lines:
        if self._lines is not None:
            if not self._stream.seekable():
                raise DeclarationError(
                    f"table '{self._table.name}': its input cannot be read a second time",
                    hint="read a file instead of a pipe",
                )
            self._stream.seek(0)
        self._lines = Lines(self._stream, progress=self._options.on_bytes)
        return self._lines

    def _chunks(self, lines: Lines) -> Iterator[list[Record]]:
        """Records in chunks of at most `batch_rows`, and empty chunks as heartbeats while the input pauses."""
        records = self._records(lines)
        batch_rows = self._options.batch_rows
        chunk: list[Record] = []
        size = 0
        while True:
            if chunk and (len(chunk) >= batch_rows or size > CHUNK_CHARACTERS or lines.is_idle()):
                yield chunk
                chunk, size = [], 0
            while not chunk and lines.is_idle(HEARTBEAT_SECONDS):
                yield []
            record = next(records, None)
            if record is None:
                break
            chunk.append(record)
            size += len(record.text)
        if chunk:
            yield chunk

    def _records(self, lines: Lines) -> Iterator[Record]:
        options, where = self._options, f"topic '{self._table.name}'"
        chosen, unit = options.columns, options.time_unit
        if options.csv is None:
            return json_records(lines, self._schema, where=where, columns=frozenset(chosen), time_unit=unit)
        return csv_records(lines, self._schema, where=where, options=options.csv, columns=chosen, time_unit=unit)

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
                    record.problem = with_place(error, f"line {record.line}")

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


def record_error(record: Record) -> RowError:
    return record.problem or RowError(f"line {record.line} was refused")
