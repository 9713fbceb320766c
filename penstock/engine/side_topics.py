"""What does not get into a view is kept beside it: dead rows in `<app>.dead`, late ones in `<topic>.late`.

Both are written in one transaction per epoch, with the epoch as its sequence: a repeat stores nothing twice, and an instance
that was replaced is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.engine.build.sources import DEAD_SCHEMA
from penstock.engine.running import staged_batches
from penstock.log import Log, Topic
from penstock.log.producer import Producer

LATE_COLUMNS = pa.schema(
    [
        ("late_for", pa.string()),
        ("late_partition", pa.int32()),
        ("late_offset", pa.int64()),
        ("late_watermark", pa.timestamp("us", "UTC")),
    ]
)

Offsets = Mapping[int, Sequence[int]]


def dead_topic(app: str) -> str:
    return f"{app}.dead"


def late_topic(topic: str) -> str:
    return f"{topic}.late"


def store_aside(log: Log, producer: Producer, epoch: int, rows: Mapping[str, pa.RecordBatch]) -> None:
    """Append rows to side topics, which are made when they are first needed; once, however often it is called."""
    filled = {name: batch for name, batch in rows.items() if batch.num_rows}
    if not filled or producer.last_transaction() >= epoch:
        return
    with log.transaction(producer, sequence=epoch) as transaction:
        for name, batch in sorted(filled.items()):
            transaction.append(_opened(log, name, batch.schema), batch)


def dead_rows(paths: Sequence[Path]) -> pa.RecordBatch:
    """The rows that tasks have set aside."""
    batches = staged_batches(paths)
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=DEAD_SCHEMA)


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
            added = [
                pa.array([late_for] * count),
                pa.array(np.full(count, partition, dtype=np.int32)),
                pa.array(batch.offsets[found]),
                pa.array(np.full(count, watermark, dtype=np.int64)).cast(pa.timestamp("us", "UTC")),
            ]
            batches.append(pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema))
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _opened(log: Log, name: str, schema: pa.Schema) -> Topic:
    if name not in log.topics():
        return log.create_topic(name, schema)
    topic = log.topic(name)
    if set(schema.names) - set(topic.schema.names):
        topic.evolve(schema)  # the topic that the rows come from has got new columns
    return topic
