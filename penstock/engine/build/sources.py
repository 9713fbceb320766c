"""Reading topics in tasks: each takes its share of the epoch's ranges, straight from mapped frames.

Rows that cannot take part are set aside here, with their reason: those whose event time is missing or too far ahead,
and those that the epoch's plan names because an expression fails on them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.contracts import Batch
from penstock.engine.build.graph import Graph
from penstock.engine.datasource.read import even_batches
from penstock.engine.datasource.topic import TopicRef, cached_topic, plain_errors
from penstock.engine.messages.decode import DecodedChanges, decode_changes
from penstock.engine.operators.contract import OFFSET, PARTITION
from penstock.engine.plan.observe import ahead_mask, event_times
from penstock.engine.run.tasks import Assignment, MapInArrow, assignment, write_report
from penstock.engine.state.columns import GONE
from penstock.engine.state.rows import mask
from penstock.flow import plan as flow
from penstock.flow.messages import MESSAGE_SCHEMA
from penstock.flow.needs import is_needed
from penstock.schema.arrow import parse_schema
from penstock.storage.files import disk_errors

EVENT_TIME = "event_time"
APPENDED = "_appended"  # when the log stored a row, in microseconds
_HIDDEN = {
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    GONE: pa.bool_(),
    APPENDED: pa.int64(),
    EVENT_TIME: pa.timestamp("us", "UTC"),
}
_DEAD_SCHEMA: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "error": pa.string(),
    "row": pa.string(),
}
DEAD_SCHEMA = pa.schema(_DEAD_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a task must know about the topic it reads."""

    topic: str
    columns: pa.Schema
    timing: flow.Timing | None
    deletes: bool  # whether delete markers are rows
    table: flow.MessageTable | None = None  # if the rows are messages about a table


def source(graph: Graph, node: flow.Source, *, appended: bool = False) -> DataFrame:
    """The rows of a topic that an epoch reads; on request with the time at which they were stored."""
    needed = graph.needs.columns[node]
    schema = parse_schema(node.schema)
    fields = [field.with_nullable(True) for field in schema if is_needed(field.name, needed)]
    timing = node.timing if isinstance(node, flow.Topic) else None
    if timing is not None and timing.sent is not None and is_needed(EVENT_TIME, needed):
        fields.append(pa.field(EVENT_TIME, _HIDDEN[EVENT_TIME]))
    deletes = isinstance(node, flow.Changelog)
    if deletes or node in graph.needs.origin:
        fields += [pa.field(name, _HIDDEN[name]) for name in (PARTITION, OFFSET)]
    if deletes:
        fields.append(pa.field(GONE, _HIDDEN[GONE]))
    if appended:
        fields.append(pa.field(APPENDED, _HIDDEN[APPENDED]))
    if not fields:
        fields.append(pa.field(OFFSET, _HIDDEN[OFFSET]))  # rows are counted, and something must carry them
    columns = pa.schema(fields)
    tasks = graph.spark.range(0, graph.partitions, 1, graph.partitions)
    table = node if isinstance(node, flow.MessageTable) else None
    read = _reading(_Source(node.name, columns, timing, deletes, table))
    return tasks.mapInArrow(read, from_arrow_schema(columns))


def _reading(what: _Source) -> MapInArrow:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"topic '{what.topic}'"):
            # All of the input is taken: Spark ends a worker that has left some, and starting one takes a second.
            number = max(batch.column(0)[0].as_py() for batch in batches if batch.num_rows)
            reader = (_Reader if what.table is None else _MessageReader)(what, assignment(), number)
            yield from even_batches(reader.rows())
            reader.finish()

    return read


class _Reader:
    """Reads the ranges of one task, and keeps the books of what it read and set aside."""

    def __init__(self, what: _Source, epoch: Assignment, number: int) -> None:
        self._what = what
        self._epoch = epoch
        self._number = number
        given = epoch.sources[what.topic]
        self._ranges = given["tasks"][number]
        self._failing = {int(number): _by_reason(rows) for number, rows in given["dead"].items()}
        self._topic = cached_topic(TopicRef(**given["topic"]))
        self._counts = {"in": 0, "dead": 0, "markers": 0}
        self._dead: list[dict[str, object]] = []

    def rows(self) -> Iterator[pa.RecordBatch]:
        names = self._needed_columns()
        for partition, start, end in self._ranges:
            for batch in self._topic.batches({partition: start}, until={partition: end}, columns=names):
                self._counts["in"] += len(batch)
                yield self._live_rows(batch)

    def finish(self) -> None:
        document: dict[str, object] = {"source": self._what.topic, "task": self._number, "counts": self._counts}
        if self._dead:
            document["dead"] = self._stage_dead_rows()
        write_report(self._epoch, document)

    def _needed_columns(self) -> list[str]:
        own = set(self._topic.schema.names)
        names = [name for name in self._what.columns.names if name in own]
        timing = self._what.timing
        if timing is not None:
            timed = (timing.column, timing.sent, timing.received)
            names += [name for name in timed if name and name not in names]
        return names

    def _live_rows(self, batch: Batch) -> pa.RecordBatch:
        keep = np.ones(len(batch), dtype=np.bool_)
        if batch.deleted is not None and not self._what.deletes:
            keep &= ~mask(batch.deleted)
            self._counts["markers"] += int((~keep).sum())
        for error, failed in self._failures(batch):
            self._set_aside(batch, keep & failed, error)
            keep &= ~failed
        columns = [self._column(batch, name) for name in self._what.columns.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._what.columns)
        return rows if keep.all() else rows.filter(pa.array(keep))

    def _failures(self, batch: Batch) -> Iterator[tuple[str, np.ndarray]]:
        timing = self._what.timing
        if timing is not None:
            events = event_times(batch, timing)
            if not events.valid.all():
                yield f"it has no event time (column '{timing.column}')", ~events.valid
            ahead = ahead_mask(events, batch.append_time, timing)
            if ahead.any():
                yield "its event time is too far ahead of when it was stored", ahead
        for error, offsets in self._failing.get(batch.partition, {}).items():
            yield error, np.isin(batch.offsets, offsets)

    def _column(self, batch: Batch, name: str) -> pa.Array[Any]:
        if name == PARTITION:
            return pa.array(np.full(len(batch), batch.partition, dtype=np.int32))
        if name == OFFSET:
            return pa.array(batch.offsets)
        if name == APPENDED:
            return pa.array(np.full(len(batch), batch.append_time, dtype=np.int64))
        if name == GONE:
            return pa.array(np.zeros(len(batch), dtype=np.bool_)) if batch.deleted is None else batch.deleted
        if name == EVENT_TIME and name not in batch.rows.schema.names:
            assert self._what.timing is not None
            events = event_times(batch, self._what.timing)
            return pa.array(events.times, mask=~events.valid).cast(pa.timestamp("us", "UTC"))
        return batch.rows.column(name)

    def _set_aside(self, batch: Batch, failed: np.ndarray, error: str) -> None:
        if not failed.any():
            return
        offsets, partition = batch.offsets[failed], batch.partition
        self._counts["dead"] += len(offsets)
        # The batch has only the columns that are needed; who mends the row wants to see all of them.
        for whole in self._topic.batches({partition: int(offsets[0])}, until={partition: int(offsets[-1]) + 1}):
            found = np.isin(whole.offsets, offsets)
            rows = whole.rows.filter(pa.array(found)).to_pylist()
            for offset, row in zip(whole.offsets[found].tolist(), rows, strict=True):
                self._dead.append(
                    {
                        "topic": self._what.topic,
                        "partition": partition,
                        "offset": offset,
                        "error": error,
                        "row": json.dumps(row, default=str),
                    }
                )

    def _stage_dead_rows(self) -> str:
        path = f"{self._epoch.staging}/dead-{secrets.token_hex(8)}.arrow"
        table = pa.Table.from_pylist(self._dead, schema=DEAD_SCHEMA)
        with pa.OSFile(str(self._epoch.directory / path), "wb") as file, pa.ipc.new_file(file, DEAD_SCHEMA) as writer:
            writer.write_table(table)
        return path


class _MessageReader(_Reader):
    """Reads the messages of another tool, and gives the rows of the table that they are about."""

    def _needed_columns(self) -> list[str]:
        return list(MESSAGE_SCHEMA.names)

    def _live_rows(self, batch: Batch) -> pa.RecordBatch:
        keep = np.ones(len(batch), dtype=np.bool_)
        for error, failed in self._failures(batch):
            self._set_aside(batch, keep & failed, error)
            keep &= ~failed
        places = np.flatnonzero(keep)
        changes = self._decode(batch, places)
        for reason, numbers in _by_reason({str(number): why for number, why in changes.reasons.items()}).items():
            failed = np.zeros(len(batch), dtype=np.bool_)
            failed[places[numbers]] = True
            self._set_aside(batch, failed, reason)
        # A message that gives a row another key counts as two, so that the books balance.
        self._counts["in"] += len(changes.message) - len(np.unique(changes.message))
        origin = places[changes.message]
        columns = [self._changed_column(batch, changes, origin, name) for name in self._what.columns.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._what.columns)

    def _decode(self, batch: Batch, places: np.ndarray) -> DecodedChanges:
        table = self._what.table
        assert table is not None
        rows = batch.rows.take(pa.array(places))
        values = rows.column("value").to_pylist()
        if batch.deleted is not None:
            is_marker = mask(batch.deleted)[places]
            values = [None if marker else value for value, marker in zip(values, is_marker, strict=True)]
        schema = parse_schema(table.schema)
        return decode_changes(rows.column("key").to_pylist(), values, schema, table.key, table.messages)

    def _changed_column(self, batch: Batch, changes: DecodedChanges, origin: np.ndarray, name: str) -> pa.Array[Any]:
        if name == GONE:
            return pa.array(changes.gone)
        if name in changes.rows.schema.names:
            return changes.rows.column(name)
        return self._column(batch, name).take(pa.array(origin))


def _by_reason(rows: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The offsets of failing rows, by why they fail."""
    found: dict[str, list[int]] = {}
    for offset, why in rows.items():
        found.setdefault(why, []).append(int(offset))
    return {why: np.array(offsets) for why, offsets in found.items()}
