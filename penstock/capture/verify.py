"""Compares a table with its copy, while both change, in memory that does not grow with the table.

The steps; the same numbers mark them in the code:

1. A snapshot of the source is summed up: a checksum for each bucket of keys.
2. When the capture has reached the end of the snapshot, the copy is summed up as well.
3. Buckets that differ are looked at row by row, with a new snapshot: the copy may be ahead of the last one.
4. Rows that differ are looked at again, until they are equal, or differ in the same way twice: that is a difference.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.copy.keys import key_values
from penstock.capture.copy.position import CopyPosition
from penstock.capture.digests import row_digests
from penstock.capture.latest import latest_digests, latest_rows
from penstock.capture.run import writer_name
from penstock.contracts import COMMIT_TIME, Database, Log, Position, Topic
from penstock.errors import UnavailableError

BUCKETS = 4096
_ROWS_AT_ONCE = 200_000  # about so many rows are looked at one by one; the rest of a table that differs is counted
_LOOKS = 8
_PAUSE = 0.05

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CellDifference:
    column: str
    source: object
    copy: object


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that is missing in the copy, is there although the source has it no longer, or has other values."""

    key: Mapping[str, object]
    what: Literal["missing", "extra", "different"]
    cells: tuple[CellDifference, ...] = ()


@dataclass(frozen=True, slots=True)
class TableComparison:
    """How a table compares with its copy. `rows` are those of the source.

    `differences` has all of them, unless `buckets_left` is not 0: so many of the 4,096 buckets of keys differ beside.
    `unsettled` rows have changed at every look, so nothing is known about them. `is_behind`: nobody captures, and the
    source may have changed since; such changes are among the differences.
    """

    table: str
    topic: str
    rows: int = 0
    differences: tuple[RowDifference, ...] = ()
    buckets_left: int = 0
    unsettled: int = 0
    is_behind: bool = False

    @property
    def is_equal(self) -> bool:
        return not self.differences and not self.buckets_left


@dataclass(slots=True)
class Comparison:
    """Compares tables of one capture. `is_running` tells whether somebody captures, so that waiting makes sense."""

    database: Database
    log: Log
    capture: str
    is_running: Callable[[], bool]
    patience: float = 300.0  # seconds
    _is_behind: bool = False

    def compare(self, table: str, topic_name: str) -> TableComparison:
        """Compare a table with the topic of its copy."""
        topic, self._is_behind = self.log.topic(topic_name), False
        rows, suspects = self._differing_buckets(table, topic)
        if not len(suspects):
            return TableComparison(table, topic_name, rows, is_behind=self._is_behind)
        chosen = suspects[: max(1, int(_ROWS_AT_ONCE * BUCKETS / max(rows, 1)))]
        differences, unsettled = self._differing_rows(table, topic, chosen)
        left = len(suspects) - len(chosen)
        return TableComparison(table, topic_name, rows, tuple(differences), left, unsettled, self._is_behind)

    # -- buckets ------------------------------------------------------------------------------------------------------

    def _differing_buckets(self, table: str, topic: Topic) -> tuple[int, npt.NDArray[np.int64]]:
        """How many rows the source has, and the buckets whose sums differ."""
        sums, copied = np.zeros(BUCKETS, np.uint64), np.zeros(BUCKETS, np.uint64)
        snapshot = self.database.snapshot(table)
        rows, columns = 0, value_columns(topic, None)
        for batch in snapshot.batches:  # 1
            columns = value_columns(topic, batch.schema)
            rows += batch.num_rows
            fitted = _fitted(batch, topic, columns)
            _add(sums, row_digests(fitted, topic.settings.key), row_digests(fitted, columns))
        self._wait_for(snapshot.end)
        with tempfile.TemporaryDirectory(prefix="penstock-verify-") as scratch:
            for keys, digests in latest_digests(topic, columns, scratch=Path(scratch)):  # 2
                _add(copied, keys, digests)
        return rows, np.flatnonzero(sums != copied)

    def _wait_for(self, end: Position) -> None:
        """Wait until the copy has everything up to the end of a snapshot, unless nobody captures."""
        until = time.monotonic() + self.patience
        while not self.database.has_reached(CopyPosition.parse(self._position()).source, end):
            if not self.is_running():
                self._is_behind = True
                return
            if time.monotonic() > until:
                raise UnavailableError(
                    f"capture '{self.capture}': its copy has not caught up with the database "
                    f"within {self.patience:.0f} seconds",
                    hint=f"see how far it is: penstock capture status {self.capture}",
                )
            time.sleep(_PAUSE)

    def _position(self) -> Position | None:
        return self.log.position(writer_name(self.capture))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _differing_rows(
        self, table: str, topic: Topic, buckets: npt.NDArray[np.int64]
    ) -> tuple[list[RowDifference], int]:
        """The rows in these buckets that differ in the same way twice, and how many would not hold still."""
        settled: dict[object, RowDifference] = {}
        before: dict[object, RowDifference] = {}
        for _ in range(_LOOKS):  # 3
            found = self._look(table, topic, buckets)
            settled = {key: found[key] for key in found if before.get(key) == found[key]}  # 4
            if len(settled) == len(found):
                return list(settled.values()), 0
            before = found
        return list(settled.values()), len(before) - len(settled)

    def _look(self, table: str, topic: Topic, buckets: npt.NDArray[np.int64]) -> dict[object, RowDifference]:
        """The rows that differ between a new snapshot and the copy after it, by their keys."""
        snapshot = self.database.snapshot(table)
        source: dict[object, Row] = {}
        columns = value_columns(topic, None)
        for batch in snapshot.batches:
            columns = value_columns(topic, batch.schema)
            fitted = _in_buckets(_fitted(batch, topic, columns), topic, buckets)
            source.update(_rows_by_key(fitted, topic, columns))
        self._wait_for(snapshot.end)
        copied: dict[object, Row] = {}
        for batch in latest_rows(topic, columns, lambda rows: _in_buckets_mask(rows, topic, buckets)):
            copied.update(_rows_by_key(batch, topic, columns))
        return dict(_differences(source, copied, topic.settings.key))


def value_columns(topic: Topic, schema: pa.Schema | None) -> list[str]:
    """The columns to compare: those that both have. When a transaction was committed is not known of a snapshot."""
    names = [name for name in topic.schema.names if name != COMMIT_TIME]
    return names if schema is None else [name for name in names if name in schema.names]


def _fitted(batch: pa.RecordBatch, topic: Topic, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = [batch.column(name).cast(topic.schema.field(name).type) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _add(sums: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64], digests: npt.NDArray[np.uint64]) -> None:
    np.add.at(sums, keys % np.uint64(BUCKETS), digests)


def _in_buckets_mask(rows: pa.RecordBatch, topic: Topic, buckets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    numbers = (row_digests(rows, topic.settings.key) % np.uint64(BUCKETS)).astype(np.int64)
    return np.isin(numbers, buckets)


def _in_buckets(rows: pa.RecordBatch, topic: Topic, buckets: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return rows.filter(pa.array(_in_buckets_mask(rows, topic, buckets)))


def _rows_by_key(rows: pa.RecordBatch, topic: Topic, columns: Sequence[str]) -> Mapping[object, Row]:
    keys = key_values(rows, topic.settings.key)
    return dict(zip(keys, rows.select(list(columns)).to_pylist(), strict=True))


def _differences(
    source: Mapping[object, Row], copied: Mapping[object, Row], key: Sequence[str]
) -> Iterator[tuple[object, RowDifference]]:
    for at, row in source.items():
        if at not in copied:
            yield at, RowDifference({name: row[name] for name in key}, "missing")
        elif cells := tuple(
            CellDifference(name, value, copied[at].get(name))
            for name, value in row.items()
            if not _is_same(value, copied[at].get(name))
        ):
            yield at, RowDifference({name: row[name] for name in key}, "different", cells)
    for at in copied.keys() - source.keys():
        yield at, RowDifference({name: copied[at][name] for name in key}, "extra")


def _is_same(one: object, two: object) -> bool:
    """NaN is the same as NaN."""
    return one == two or (one != one and two != two)
