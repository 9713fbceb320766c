"""What does not get into a view is kept beside it, in a target of its own: dead rows in `<app>.dead`, late ones in
`<topic>.late`.

A row is there once, however often it is read: after a crash, by views that are built again, after a restore. What is
there already is told by the offsets the rows had, and an instance that was replaced is refused by the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.contracts import Changes, Log, Topic, TopicRows
from penstock.engine.build.sources import DEAD_SCHEMA
from penstock.engine.publish.app_writer import AppWriter
from penstock.engine.run.compiled import staged_batches
from penstock.errors import DeclarationError
from penstock.schema.arrow import WIDER_TYPES
from penstock.schema.ddl import type_ddl

_LATE_COLUMNS: dict[str, pa.DataType] = {
    "late_for": pa.string(),
    "late_partition": pa.int32(),
    "late_offset": pa.int64(),
    "late_watermark": pa.timestamp("us", "UTC"),
}
LATE_COLUMNS = pa.schema(_LATE_COLUMNS)


@dataclass(frozen=True, slots=True)
class _RowOrigin:
    """The columns that say where a row of a side topic comes from, and by which it is told from others."""

    origin: tuple[str, ...]
    offset: str
    also: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        return [*self.origin, self.offset, *self.also]


_DEAD = _RowOrigin(("topic", "partition"), "offset")
_LATE = _RowOrigin(("late_partition",), "late_offset", ("late_for",))
_Offsets = dict[tuple[object, ...], int]
"""For each origin an offset."""

Offsets = Mapping[int, Sequence[int]]
SIDE_TOPICS = "side topics"
"""The name of the target."""


class SideTopics:
    """A `Target`: the side topics of a running instance, by their names.

    It recognises rows, not epochs: an epoch may be planned again after its rows were stored here, as nobody counts them
    as seen. So it has no last epoch, and every row of every epoch is looked for. A replaced instance is refused once it
    has something to store: a start that was refused itself has replaced nobody.
    """

    def __init__(self, log: Log, writer: AppWriter) -> None:
        self._log = log
        self._writer = writer
        # The last offset of each origin that a side topic has: rows behind it are surely new.
        self._last: dict[str, _Offsets] = {}

    def take_over(self, app: str, token: int) -> int:
        """Be the instance that writes: whoever has opened the writer is. Always 0: epochs are not counted here."""
        self._writer.take_over(app, token)
        return 0

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        """Append the rows of an epoch that are not there yet; False if all are. There is nothing to show."""
        batches = {name: [part.rows for part in parts] for name, parts in changes.items()}
        return self.store({name: _concat_rows(parts, parts[0].schema) for name, parts in batches.items() if parts})

    def close(self) -> None:
        """Nothing is open here: the writer and the topics are closed with the log."""

    def store(self, rows: Mapping[str, pa.RecordBatch]) -> bool:
        """Append rows to their topics, which are made when they are first needed: all of them, or nothing.

        False: there are none that are not there yet.
        """
        for name, batch in rows.items():
            if batch.num_rows and name in self._log.topics():
                _check_side_topic(self._log.topic(name), batch.schema)
        new = {name: self._new_rows(name, batch) for name, batch in sorted(rows.items()) if batch.num_rows}
        filled = {name: batch for name, batch in new.items() if batch.num_rows}
        if not filled:
            return False
        last = {name: self._last.pop(name, {}) for name in filled}  # if it fails, what is there is read again
        for name, batch in filled.items():
            _have_topic(self._log, name, batch.schema)
        self._writer.write_aside([TopicRows(name, batch) for name, batch in filled.items()])
        for name, batch in filled.items():
            reached = _furthest_offsets(_origin_columns(batch.schema), pa.table(batch), "max")
            self._last[name] = last[name] | {
                origin: max(end, last[name].get(origin, end)) for origin, end in reached.items()
            }
        return True

    def _new_rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not there yet."""
        columns = _origin_columns(batch.schema)
        if name not in self._last:
            self._last[name] = _furthest_offsets(columns, self._stored_rows(name, columns), "max")
        begins = _furthest_offsets(columns, pa.table(batch), "min")
        if all(first > self._last[name].get(origin, -1) for origin, first in begins.items()):
            return batch
        asked = pa.table({name: batch.column(name) for name in columns.all})
        asked = asked.append_column("_row", pa.array(np.arange(batch.num_rows)))
        new = asked.join(self._stored_rows(name, columns), keys=columns.all, join_type="left anti")
        return batch.take(pa.array(np.sort(new.column("_row").to_numpy())))

    def _stored_rows(self, name: str, columns: _RowOrigin) -> pa.Table:
        if name in self._log.topics():
            topic = self._log.topic(name)
            schema = pa.schema([topic.schema.field(column).with_nullable(True) for column in columns.all])
            batches = [batch.rows_kept.cast(schema) for batch in topic.batches(columns=columns.all)]
            return pa.Table.from_batches(batches, schema=schema)
        fields = [(column, pa.string() if column in ("topic", "late_for") else pa.int64()) for column in columns.all]
        return pa.schema(fields).empty_table()


def _origin_columns(schema: pa.Schema) -> _RowOrigin:
    return _DEAD if schema.equals(DEAD_SCHEMA) else _LATE


def _furthest_offsets(columns: _RowOrigin, rows: pa.Table, which: Literal["min", "max"]) -> _Offsets:
    """The least or greatest offset of each origin."""
    found = rows.group_by(list(columns.origin)).aggregate([(columns.offset, which)]).to_pylist()
    return {tuple(row[name] for name in columns.origin): row[f"{columns.offset}_{which}"] for row in found}


def dead_rows(paths: Sequence[Path]) -> pa.RecordBatch:
    """The rows that tasks have set aside."""
    return _concat_rows(staged_batches(paths), DEAD_SCHEMA)


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
    return _concat_rows(batches, schema)


def as_added(rows: pa.RecordBatch) -> Changes:
    """Rows as the changes that add them."""
    return Changes(rows, pa.array(np.ones(rows.num_rows), pa.int64()))


def _concat_rows(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    whole: pa.RecordBatch = pa.concat_batches(list(batches))  # type: ignore[attr-defined]
    return whole


def _check_side_topic(topic: Topic, schema: pa.Schema) -> None:
    """Refuse a topic of this name that somebody else has made: the rows that are set aside do not fit into it."""
    reasons = [f"it has no column '{name}'" for name in _origin_columns(schema).all if name not in topic.schema.names]
    if topic.settings.key:
        reasons.append(f"its key is {', '.join(topic.settings.key)}")
    for field in topic.schema:
        if field.name not in schema.names and not field.nullable:
            reasons.append(f"its column '{field.name}' is not null, and these rows do not have it")
        elif field.name in schema.names and not _fits(schema.field(field.name).type, field.type):
            wanted = type_ddl(schema.field(field.name).type)
            reasons.append(f"its column '{field.name}' is {type_ddl(field.type)}, and that of these rows {wanted}")
    if reasons:
        kind = "dead" if schema.equals(DEAD_SCHEMA) else "late"
        raise DeclarationError(
            f"topic '{topic.name}': {kind} rows are set aside there, but they do not fit; {'; '.join(reasons)}",
            hint=f"if nobody needs its rows, drop it, and the app creates it again: penstock topic drop {topic.name}",
        )


def _fits(rows: pa.DataType, stored: pa.DataType) -> bool:
    """Whether values of the one type can be stored as the other, or the topic can be widened to hold them."""
    if rows == stored or stored in WIDER_TYPES.get(rows, ()) or rows in WIDER_TYPES.get(stored, ()):
        return True
    return any(is_kind(rows) and is_kind(stored) for is_kind in (pa.types.is_decimal, pa.types.is_nested))


def _have_topic(log: Log, name: str, schema: pa.Schema) -> None:
    """Make the topic if it is missing. It gets the columns that the topic its rows come from has got since."""
    if name not in log.topics():
        log.create_topic(name, schema)
    elif set(schema.names) - set(log.topic(name).schema.names):
        log.topic(name).evolve(schema)
