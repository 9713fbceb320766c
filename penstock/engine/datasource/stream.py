"""Reading a topic as a stream: offsets per partition, and how much of what is there goes into the next micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.engine.datasource.options import Options
from penstock.engine.datasource.read import chosen_schema, plan_splits, positions, read_split
from penstock.engine.datasource.topic import cached_topic, fresh_topic, plain_errors, topic_ref
from penstock.engine.plan.admission import admit

Offsets = dict[str, int]
"""What Spark keeps in the checkpoint: for every partition, by its number as text, the offset of the next row."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls all but `read` in one process beside the driver, `read` in tasks.

    `from` counts for a new query only: one that starts again goes on where its checkpoint says, or fails if the log no
    longer reaches back that far.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._final: dict[int, int] | None = None  # where a query that takes what is available now ends
        with fresh_topic(options) as topic:
            self._ref = topic_ref(options.log, topic)
            self._schema = chosen_schema(topic, schema)

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        with plain_errors():
            return _encode_offsets(positions(cached_topic(self._ref), self._options.start, unnamed="start"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark knows one limit only; where both are set, `latestOffset` keeps the other by itself."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        with plain_errors():
            topic = cached_topic(self._ref)
            starts = topic.positions(_decode_offsets(start))
            ends = self._final or topic.ends()
            if isinstance(limit, ReadMaxRows):
                ends = admit(topic, starts, ends, max_rows=limit.max_rows, max_bytes=self._options.max_bytes)
            elif isinstance(limit, ReadMaxBytes):
                ends = admit(topic, starts, ends, max_bytes=limit.max_bytes)
            # A query that starts again may stand behind where it would end.
            return _encode_offsets({number: max(starts[number], ends[number]) for number in starts})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with plain_errors():
            self._final = cached_topic(self._ref).ends()

    def reportLatestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        with plain_errors():
            return _encode_offsets(cached_topic(self._ref).ends())

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with plain_errors():
            topic = cached_topic(self._ref)
            return [*plan_splits(topic, topic.positions(_decode_offsets(start)), _decode_offsets(end))]

    def read(self, split: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._ref, self._schema, split)


def _encode_offsets(offsets: Mapping[int, int]) -> Offsets:
    return {str(number): offsets[number] for number in sorted(offsets)}


def _decode_offsets(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(number): offset for number, offset in offsets.items()}
