"""A Parquet file as a source. Its position is the number of the last row, so whole row groups are skipped unread.

Rows stay columns from the file to the log, and are read a batch at a time: memory does not grow with the file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.capture.files.options import FileOptions
from penstock.capture.files.positions import position_after, record_count, with_place
from penstock.capture.files.records import Record
from penstock.capture.files.value_readers import UNITS_PER_SECOND, TimeUnit
from penstock.contracts import Captured, Position, SourceTable
from penstock.errors import DeclarationError, RowError
from penstock.suggest import closest

Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"


class ParquetSource:
    """One file with one table. `skipped_rows` counts the rows that were left out because they are already stored."""

    place = "row"  # what messages call the number of a record
    header = ""

    def __init__(self, path: Path, table: SourceTable, options: FileOptions | None = None) -> None:
        if table.schema is None:
            raise DeclarationError(f"table '{table.name}': a file is read by a schema, and none was given")
        self.skipped_rows = 0
        self.last_line = 0  # of the skipped rows
        self._path = path
        self._table = table
        self._schema = table.schema
        self._options = options or FileOptions()
        self._file = open_parquet(path)
        self._columns = chosen_columns(self._file.schema_arrow.names, self._options.columns, path)
        self._refuse_other_columns()

    def tables(self) -> Sequence[SourceTable]:
        return [self._table]

    def read(self, after: Position | None) -> Iterator[Captured]:
        """Rows after a position, in items of at most `batch_rows`."""
        stored = min(record_count(after), self._file.metadata.num_rows)
        self.skipped_rows, self.last_line = stored, stored
        for start, batch in self._batches(stored):
            bad = find_bad_rows(batch, self._fit)
            if bad and self._options.on_bad is None:
                first = min(bad)
                if first:
                    yield self._item(batch.slice(0, first), start + first)
                raise with_place(bad[first], f"row {start + first + 1}")
            for index in sorted(bad):
                self._report(start + index + 1, batch, index, bad[index])
            good = batch.filter(pa.array([index not in bad for index in range(batch.num_rows)])) if bad else batch
            yield self._item(good, start + batch.num_rows)

    def close(self) -> None:
        self._file.close()

    def _item(self, batch: pa.RecordBatch, count: int) -> Captured:
        rows = self._fit(batch)
        marks = [True] * rows.num_rows if self._options.deletes else None
        return Captured(self._table.name, rows, marks, position_after(count, count))

    def _batches(self, stored: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of rows after the first `stored`, each with the number of rows before it."""
        metadata = self._file.metadata
        before, groups = 0, list(range(metadata.num_row_groups))
        while groups and before + metadata.row_group(groups[0]).num_rows <= stored:
            before += metadata.row_group(groups.pop(0)).num_rows
        for batch in _read_batches(self._file, self._path, groups, self._columns, self._options.batch_rows):
            self._options.on_bytes(_share_of(batch.num_rows, metadata.num_rows, self._path))
            skipped = max(0, min(batch.num_rows, stored - before))
            before += batch.num_rows
            if skipped < batch.num_rows:
                rest = batch.slice(skipped)
                yield before - rest.num_rows, self._with_times(rest)

    def _with_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with numbers in timestamp columns as times, if it is known what they count."""
        unit = self._options.time_unit
        for index, field in enumerate(batch.schema):
            wanted = self._schema.field(field.name).type
            if unit and isinstance(wanted, pa.TimestampType) and _is_number(field.type):
                times = epoch_times(batch.column(index), unit, where=f"{self._path}: column '{field.name}'")
                batch = batch.set_column(index, field.name, times)
        return batch

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._options.fit is None else self._options.fit(batch)

    def _refuse_other_columns(self) -> None:
        """Refuse a file whose columns or types are not those of the topic, before anything of it is stored."""
        names = self._schema.names
        for name in self._columns:
            if name not in names:
                known = f"the columns are: {', '.join(names)}; take only some of the file's columns with --columns"
                raise DeclarationError(
                    f"{self._path}: it has a column that is not in the schema of topic '{self._table.name}'; "
                    f"found '{name}'",
                    hint=closest(name, names) or known,
                )
        for name in self._columns:
            found, wanted = self._file.schema_arrow.field(name).type, self._schema.field(name).type
            if isinstance(wanted, pa.TimestampType) and _is_number(found) and self._options.time_unit is None:
                raise DeclarationError(
                    f"{self._path}: column '{name}' takes timestamp; found {found}",
                    hint="say what the numbers count since 1970: --time-unit s, ms, us or ns",
                )
        fields = [self._file.schema_arrow.field(name) for name in self._columns]
        empty = pa.RecordBatch.from_pylist([], schema=pa.schema(fields))
        try:
            self._fit(self._with_times(empty))
        except RowError as error:
            raise DeclarationError(f"{self._path}: {error.message}", hint=error.hint) from None

    def _report(self, number: int, batch: pa.RecordBatch, index: int, problem: RowError) -> None:
        assert self._options.on_bad is not None
        row = batch.slice(index, 1).to_pylist()[0]
        text = json.dumps(row, default=_json_text, ensure_ascii=False) + "\n"
        self._options.on_bad(Record(number, number, text, row, with_place(problem, f"row {number}")))


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file and read its footer. DeclarationError if it is not Parquet."""
    try:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except pa.ArrowInvalid as error:
        what = str(error).partition("\n")[0]
        raise DeclarationError(f"{path}: it is not a Parquet file, or it is damaged ({what})") from None
    except OSError as error:
        raise DeclarationError(f"{path}: it cannot be read ({error.strerror or error})") from error


def chosen_columns(names: Sequence[str], columns: Sequence[str], path: Path) -> list[str]:
    """The columns to read, in the order of the file. DeclarationError if it lacks one."""
    for name in columns:
        if name not in names:
            raise DeclarationError(
                f"{path}: it has no column '{name}'; it has {', '.join(names)}", hint=closest(name, list(names))
            )
    return [name for name in names if not columns or name in columns]


def find_bad_rows(batch: pa.RecordBatch, fit: Callable[[pa.RecordBatch], pa.RecordBatch]) -> dict[int, RowError]:
    """The rows that do not fit, by bisection: where few are bad, few attempts are made."""
    try:
        fit(batch)
        return {}
    except RowError as error:
        if batch.num_rows <= 1:
            return {0: error}
    half = batch.num_rows // 2
    second = find_bad_rows(batch.slice(half), fit)
    return find_bad_rows(batch.slice(0, half), fit) | {half + index: error for index, error in second.items()}


def epoch_times(numbers: Column, unit: TimeUnit, *, where: str) -> Column:
    """Numbers that count since 1970 as times, cut to microseconds."""
    per_second = UNITS_PER_SECOND[unit]
    try:
        if pa.types.is_floating(numbers.type):
            microseconds = np.floor(numbers.cast(pa.float64()).to_numpy(zero_copy_only=False) * (1e6 / per_second))
            times: Column = pa.array(microseconds, mask=numbers.is_null().to_numpy(zero_copy_only=False))
            return times.cast(pa.int64()).cast(pa.timestamp("us"))
        return numbers.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.timestamp("us"), safe=unit != "ns")
    except pa.ArrowInvalid:
        raise RowError(f"{where}: a number is outside the range of timestamps; does it count {unit}?") from None


def _read_batches(
    file: pq.ParquetFile, path: Path, groups: Sequence[int], columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    batches = file.iter_batches(batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            what = str(error).partition("\n")[0]
            raise RowError(f"{path}: it is damaged; what came before is stored ({what})") from None
        if batch is None:
            return
        yield batch


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def _share_of(rows: int, all_rows: int, path: Path) -> int:
    """About how many bytes of the file these rows are."""
    return path.stat().st_size * rows // max(1, all_rows)


def _json_text(value: object) -> str:
    """A value that JSON lacks, as `penstock produce` reads it from JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
