"""One table of a copy: its topic, the rows of the open transaction, and what the topic had before where it matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.capture.copy.earlier import EarlierRows, value_columns
from penstock.capture.copy.keys import key_values, live_keys
from penstock.capture.copy.open_rows import OpenRowsOfTable
from penstock.capture.copy.position import CopyBegin
from penstock.capture.copy.topics import fitted
from penstock.capture.copy.unchanged import fill_unchanged
from penstock.capture.digests import row_digests
from penstock.contracts import COMMIT_TIME, Captured, Offsets, Topic
from penstock.errors import DamagedError

_Rows = tuple[pa.RecordBatch, "pa.BooleanArray | None"]


@dataclass(slots=True)
class CopiedTable:
    """`begin` is set while a copy of the table runs. `capture` is the name of the capture, for messages."""

    name: str
    capture: str
    topic: Topic
    folder: Path
    is_copied: Callable[[], bool]  # whether the source has given all of its rows
    inserts_only: bool = False
    begin: CopyBegin | None = None
    open_rows: OpenRowsOfTable = field(init=False)
    _earlier: EarlierRows | None = None

    def __post_init__(self) -> None:
        self.open_rows = OpenRowsOfTable(self.folder)

    # -- its life -----------------------------------------------------------------------------------------------------

    def restart(self, begin: CopyBegin | None) -> None:
        """The source is read again from what is written: forget what was given since."""
        self.open_rows.clear()
        self.begin = begin
        self.close()
        self._earlier = None
        if self._replaces_rows or self._path.exists():
            self._open_earlier(keeps_cells=False)

    def close(self) -> None:
        if self._earlier is not None:
            self._earlier.close()

    def commit(self) -> None:
        """Everything that was given is in the topic."""
        if self._earlier is not None:
            self._earlier.commit()

    # -- rows ---------------------------------------------------------------------------------------------------------

    def lacks_earlier_values(self, item: Captured) -> bool:
        """Whether `rows` needs to look up values for this item, and cannot yet: `open_values` comes first."""
        return bool(item.unchanged) and (self._earlier is None or not self._earlier.keeps_cells)

    def open_values(self) -> None:
        """Make values of earlier rows known. What is complete must be in the topic."""
        self._open_earlier(keeps_cells=True)

    def rows(self, item: Captured) -> _Rows:
        """The rows of an item as the topic gets them."""
        assert isinstance(item.rows, pa.RecordBatch), "rows of databases are Arrow batches"
        rows = fitted(item.rows, self.topic, self.name)
        deleted = None if item.deleted is None else pa.array(item.deleted, pa.bool_())
        if item.unchanged:
            rows, deleted = self._fill(rows, deleted, item)
        if self._replaces_rows and rows.num_rows:
            rows = self._keep_times(rows)
        self._remember(rows, deleted)
        return rows, deleted

    def _remember(self, rows: pa.RecordBatch, deleted: pa.BooleanArray | None) -> None:
        if rows.num_rows and not self.inserts_only:
            self.open_rows.add(rows, deleted)
            if self._earlier is not None:
                self._earlier.add(rows, deleted)

    def _fill(self, rows: pa.RecordBatch, deleted: pa.BooleanArray | None, item: Captured) -> _Rows:
        assert self._earlier is not None
        keys = key_values(rows, self.topic.settings.key)
        rows, missing = fill_unchanged(rows, deleted, item.unchanged, keys, self._earlier.cells)
        if not missing.any():
            return rows, deleted
        if self.begin is None and self.is_copied():
            raise self._missing_error(rows.slice(int(np.argmax(missing)), 1), item)
        there = pa.array(~missing)  # the others are yet to be copied
        return rows.filter(there), None if deleted is None else deleted.filter(there)

    def _missing_error(self, row: pa.RecordBatch, item: Captured) -> DamagedError:
        key = ", ".join(f"{name} = {row.column(name)[0].as_py()}" for name in self.topic.settings.key)
        return DamagedError(
            f"table '{self.name}': the database did not send {', '.join(item.unchanged)} of the row with {key}, "
            f"because it did not change, and topic '{self.topic.name}' has no such row",
            hint=f"copy the table again: penstock capture snapshot {self.capture} --table {self.name}",
        )

    def _keep_times(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Copied rows have no time. One that the topic has already keeps its time; others are as new as their copy."""
        assert self._earlier is not None and self.begin is not None
        times = rows.column(COMMIT_TIME).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        copied = times == 0
        if not copied.any():
            return rows
        found = self._earlier.find(rows)
        digests = row_digests(rows, value_columns(rows.schema, self.topic.settings.key))
        is_same = found.known & (found.digests == digests)
        times = np.where(copied, np.where(is_same, found.times, self.begin.time), times)
        at = rows.schema.get_field_index(COMMIT_TIME)
        return rows.set_column(at, rows.schema.field(at), pa.array(times).cast(rows.schema.field(at).type))

    # -- the table as a whole -----------------------------------------------------------------------------------------

    @property
    def _replaces_rows(self) -> bool:
        """Whether a copy runs whose rows take the place of others."""
        if self.begin is None or self.inserts_only:
            return False
        starts = self.topic.starts()
        return any(offset > starts[number] for number, offset in self.begin.offsets.items())

    def begin_copy(self, time: int) -> CopyBegin:
        """A copy begins where the topic ends. What is complete must be in the topic."""
        self.begin = CopyBegin(self.topic.ends(), time)
        if self._earlier is not None:
            self._earlier.begin_copy(self.begin.offsets)
        elif self._replaces_rows:
            self._open_earlier(keeps_cells=False)
        return self.begin

    def truncate(self, time: int) -> Iterator[_Rows]:
        """Delete markers for all rows, those of the open transaction included."""
        if not self.inserts_only:
            yield from self._delete_markers(None, time)

    def end_copy(self, time: int) -> Iterator[_Rows]:
        """Delete markers for all rows that the source had no longer when it was copied."""
        if self._replaces_rows:
            assert self.begin is not None
            yield from self._delete_markers(self.begin.offsets, time)
        self.begin = None
        if self._earlier is not None:
            self._earlier.end_copy()

    def forget_digests(self) -> None:
        """After a copy, remove what only copies need."""
        if self._earlier is not None and self.begin is None and not self._earlier.keeps_cells:
            self._earlier.remove()
            self._earlier = None

    def _delete_markers(self, before: Offsets | None, time: int) -> Iterator[_Rows]:
        found = live_keys(self.topic, open_rows=self.open_rows, before=before, scratch=self.folder / "scratch")
        # All events were read when the first key is there, so the open rows may change from then on.
        for keys in found:
            rows = _marker_rows(keys, self.topic.schema, time)
            deleted = pa.repeat(True, rows.num_rows)
            self._remember(rows, deleted)
            yield rows, deleted

    # -- what the topic had before ------------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.topic.name}.sqlite"

    def _open_earlier(self, *, keeps_cells: bool) -> None:
        self.close()
        since = None if self.begin is None else self.begin.offsets
        self._earlier = EarlierRows(self._path, self.topic, keeps_cells, since)
        self._earlier.open()
        for rows, deleted in self.open_rows:
            self._earlier.add(rows, deleted)


def _marker_rows(keys: pa.RecordBatch, schema: pa.Schema, time: int) -> pa.RecordBatch:
    count = keys.num_rows
    columns = [
        keys.column(column.name)
        if column.name in keys.schema.names
        else pa.repeat(time, count).cast(column.type)
        if column.name == COMMIT_TIME
        else pa.nulls(count, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([column.with_nullable(True) for column in schema]))
