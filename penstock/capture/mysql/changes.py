"""Row changes of one table, gathered from many events and converted together, column by column. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.mysql.catalog import rows_schema
from penstock.capture.mysql.cells import Bools, Ints, rows_at
from penstock.capture.mysql.logged import LoggedTable
from penstock.capture.mysql.values import array_from_log

if TYPE_CHECKING:
    from penstock.capture.mysql.cells import Array

_WRITTEN, _AFTER, _BEFORE, _DELETED = range(4)
_KINDS = {"write": bytes([_WRITTEN]), "update": bytes([_BEFORE, _AFTER]), "delete": bytes([_DELETED])}


@dataclass(slots=True)
class TableChanges:
    """The row images of one table, in the order of the log."""

    table: LoggedTable
    _images: list[bytes] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _kinds: bytearray = field(default_factory=bytearray)
    _times: list[tuple[int, int]] = field(default_factory=list)  # seconds, and for how many images
    size: int = 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, what: str, images: bytes, seconds: int) -> None:
        """Add the images of one event, whose transaction was committed at this time."""
        starts = self.table.rows.image_starts(images, 0, len(images))
        base = self.size
        self._starts.extend([base + start for start in starts] if base else starts)
        self._images.append(images)
        self.size += len(images)
        pattern = _KINDS[what]
        self._kinds += pattern * (len(starts) // len(pattern))
        self._times.append((seconds, len(starts)))

    def to_batch(self) -> tuple[pa.RecordBatch, pa.BooleanArray | None] | None:
        """The rows, and which of them delete their key; None if nothing is left to give.

        An update that changes the key is a delete of the key before and then a row.
        """
        buffer = np.frombuffer(b"".join(self._images) + bytes(9), np.uint8)
        cells = self.table.rows.cells(buffer, np.array(self._starts, np.int64))
        kinds = np.frombuffer(bytes(self._kinds), np.uint8)
        keys = {
            column.name: array_from_log(cells[number], column)
            for number, column in self.table.columns
            if column.name in self.table.key
        }
        rows = np.flatnonzero(self._rows_to_give(kinds, keys))
        if not len(rows):
            return None
        deleted = kinds[rows] >= _BEFORE
        arrays = [
            rows_at(keys[column.name], rows)
            if column.name in keys
            else array_from_log(cells[number].take(rows).without(deleted), column)
            for number, column in self.table.columns
        ]
        schema = rows_schema([column for _, column in self.table.columns], self.table.key)
        batch = pa.RecordBatch.from_arrays([*arrays, self._commit_times(rows)], schema=schema)
        return batch, pa.array(deleted) if deleted.any() else None

    def _rows_to_give(self, kinds: np.typing.NDArray[np.uint8], keys: dict[str, Array]) -> Bools:
        if self.table.inserts_only:
            return np.asarray(kinds == _WRITTEN, np.bool_)
        given: Bools = np.asarray(kinds != _BEFORE, np.bool_)
        before = np.flatnonzero(~given)
        for key in keys.values():
            moved = pc.not_equal(rows_at(key, before), rows_at(key, before + 1))
            given[before] |= moved.to_numpy(zero_copy_only=False)
        return given

    def _commit_times(self, rows: Ints) -> Array:
        seconds, counts = np.array(self._times, np.int64).T
        times: Array = pa.array(np.repeat(seconds, counts)[rows] * 1_000_000).view(pa.timestamp("us", "UTC"))
        return times
