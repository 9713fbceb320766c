"""What does not get into a view is kept beside it: dead rows in `<app>.dead`, late ones in `<topic>.late`.

A row is there once, however often it is read: after a crash, by views that are built again, after a restore. What is
there already is told by the offsets the rows had, and an instance that was replaced is refused by the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.engine.build.sources import DEAD_SCHEMA
from penstock.engine.run.compiled import staged_batches
from penstock.log import Log, Topic
from penstock.log.producer import Producer

_LATE_COLUMNS: dict[str, pa.DataType] = {
    "late_for": pa.string(),
    "late_partition": pa.int32(),
    "late_offset": pa.int64(),
    "late_watermark": pa.timestamp("us", "UTC"),
}
LATE_COLUMNS = pa.schema(_LATE_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Place:
    """The columns that say where a row of a side topic comes from, and by which it is told from others."""

    origin: tuple[str, ...]
    offset: str
    also: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return [*self.origin, self.offset, *self.also]


_DEAD = _Place(("topic", "partition"), "offset")
_LATE = _Place(("late_partition",), "late_offset", ("late_for",))
_Reach = dict[tuple[object, ...], int]
"""For each origin an offset."""

Offsets = Mapping[int, Sequence[int]]


def dead_topic(app: str) -> str:
    return f"{app}.dead"


def late_topic(topic: str) -> str:
    return f"{topic}.late"


class SideTopics:
    """The side topics of a running instance."""

    def __init__(self, log: Log, producer: Producer) -> None:
        self._log = log
        self._producer = producer
        # The last offset of each origin that a side topic has: rows behind it are surely new.
        self._last: dict[str, _Reach] = {}

    def store(self, rows: Mapping[str, pa.RecordBatch]) -> None:
        """Append rows to their topics, which are made when they are first needed: all of them, or nothing."""
        new = {name: self._new(name, batch) for name, batch in sorted(rows.items()) if batch.num_rows}
        filled = {name: batch for name, batch in new.items() if batch.num_rows}
        if not filled:
            return
        last = {name: self._last.pop(name, {}) for name in filled}  # if it fails, what is there is read again
        with self._log.transaction(self._producer) as transaction:
            for name, batch in filled.items():
                transaction.append(_opened(self._log, name, batch.schema), batch)
        for name, batch in filled.items():
            reached = _reach(_place(batch.schema), pa.table(batch), "max")
            self._last[name] = last[name] | {one: max(end, last[name].get(one, end)) for one, end in reached.items()}

    def _new(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not there yet."""
        place = _place(batch.schema)
        if name not in self._last:
            self._last[name] = _reach(place, self._there(name, place), "max")
        begins = _reach(place, pa.table(batch), "min")
        if all(first > self._last[name].get(origin, -1) for origin, first in begins.items()):
            return batch
        asked = pa.table({one: batch.column(one) for one in place.columns})
        asked = asked.append_column("_row", pa.array(np.arange(batch.num_rows)))
        left = asked.join(self._there(name, place), keys=place.columns, join_type="left anti")
        return batch.take(pa.array(np.sort(left.column("_row").to_numpy())))

    def _there(self, name: str, place: _Place) -> pa.Table:
        if name in self._log.topics():
            return self._log.topic(name).read(columns=place.columns)
        fields = [(one, pa.string() if one in ("topic", "late_for") else pa.int64()) for one in place.columns]
        return pa.schema(fields).empty_table()


def _place(schema: pa.Schema) -> _Place:
    return _DEAD if schema.equals(DEAD_SCHEMA) else _LATE


def _reach(place: _Place, rows: pa.Table, which: Literal["min", "max"]) -> _Reach:
    """The least or greatest offset of each origin."""
    found = rows.group_by(list(place.origin)).aggregate([(place.offset, which)]).to_pylist()
    return {tuple(row[one] for one in place.origin): row[f"{place.offset}_{which}"] for row in found}


def dead_rows(paths: Sequence[Path]) -> pa.RecordBatch:
    """The rows that tasks have set aside."""
    return _together(staged_batches(paths), DEAD_SCHEMA)


def late_rows(topic: Topic, offsets: Offsets, *, late_for: str, watermark: int) -> pa.RecordBatch:
    """Rows of a topic as they are, with what they were late for, where they are, and what the watermark was."""
    schema = pa.schema([*(field.with_nullable(True) for field in topic.schema), *LATE_COLUMNS])
    batches = []
    for partition, wanted in offsets.items():
        span = {partition: min(wanted)}, {partition: max(wanted) + 1}
        for batch in topic.batches(span[0], until=span[1]):
            found = np.isin(batch.offsets, wanted)
            if not found.any():
                continue
            rows, count = batch.rows.filter(pa.array(found)), int(found.sum())
            added: list[pa.Array[Any]] = [
                pa.array([late_for] * count),
                pa.array(np.full(count, partition, dtype=np.int32)),
                pa.array(batch.offsets[found]),
                pa.array(np.full(count, watermark, dtype=np.int64)).cast(pa.timestamp("us", "UTC")),
            ]
            batches.append(pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema))
    return _together(batches, schema)


def _together(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    whole: pa.RecordBatch = pa.concat_batches(list(batches))  # type: ignore[attr-defined]
    return whole


def _opened(log: Log, name: str, schema: pa.Schema) -> Topic:
    if name not in log.topics():
        return log.create_topic(name, schema)
    topic = log.topic(name)
    if set(schema.names) - set(topic.schema.names):
        topic.evolve(schema)  # the topic that the rows come from has got new columns
    return topic
