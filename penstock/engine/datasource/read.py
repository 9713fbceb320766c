"""Reading a topic with Spark: a plan of splits, and in each task the rows of one split, straight from mapped frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.contracts import DELETED, Batch, Start, Topic
from penstock.engine.datasource.options import Options
from penstock.engine.datasource.topic import TopicRef, cached_topic, fresh_topic, plain_errors, topic_ref
from penstock.engine.plan.extents import byte_extent, cuts, size_between, split_size
from penstock.errors import DeclarationError
from penstock.schema.ddl import Field
from penstock.suggest import closest

_METADATA_TYPES: dict[str, pa.DataType] = {
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_append_time": pa.timestamp("us", "UTC"),
    DELETED: pa.bool_(),
    "_version": pa.int64(),
}
METADATA = pa.schema(_METADATA_TYPES)
# Small frames are put together up to this, so that Spark has few Arrow batches; larger ones are passed on uncopied.
LEAST_ROWS = 8 * 1024
# And very large ones in pieces, to bound what Python and the JVM hold at a time. Larger pieces were not clearly faster.
MOST_ROWS = 64 * 1024


@dataclass
class Split(InputPartition):
    """The rows of one partition from `start` up to `end`, exclusive: the work of one task."""

    partition: int
    start: int
    end: int


class BatchReader(DataSourceReader):
    """Reads the range between two positions as they are when the read is planned. Made on the driver, used in tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        with fresh_topic(options) as topic:
            self._ref = topic_ref(options.log, topic)
            self._schema = chosen_schema(topic, schema)

    def partitions(self) -> list[InputPartition]:
        with plain_errors(), fresh_topic(self._options) as topic:
            starts = positions(topic, self._options.start, unnamed="start")
            ends = positions(topic, self._options.until, unnamed="end")
            # Spark takes no splits for one split of None; an empty one says what is meant.
            return [*plan_splits(topic, starts, ends)] or [Split(0, 0, 0)]

    def read(self, split: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._ref, self._schema, split)


def positions(topic: Topic, position: Start, *, unnamed: str) -> dict[int, int]:
    """For every partition the offset that an option means; `unnamed` is for partitions that it leaves out."""
    if isinstance(position, Mapping):
        return {**topic.positions(unnamed), **topic.positions(position)}
    return topic.positions(position)


def plan_splits(topic: Topic, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Split]:
    """Cut the range of each partition, so that all cores have work and no task has too much."""
    ranges = {number: (starts[number], ends[number]) for number in starts if starts[number] < ends[number]}
    extents = {number: byte_extent(topic, number, *span) for number, span in ranges.items()}
    total = sum(size_between(extents[number], *ranges[number]) for number in ranges)
    return [
        Split(number, *cut) for number in ranges for cut in cuts(extents[number], *ranges[number], split_size(total))
    ]


# -- schemas ----------------------------------------------------------------------------------------------------------


def readable_schema(topic: Topic, options: Options) -> pa.Schema:
    """The columns that the options ask for. All are nullable: of a row that deletes its key, only the key is there."""
    fields = [field.with_nullable(True) for field in _readable_fields(topic, options)]
    if options.columns is None:
        return pa.schema(fields)
    known = {field.name: field for field in fields}
    for name in options.columns:
        if name not in known:
            raise _no_column(topic, name, list(known))
    return pa.schema([known[name] for name in options.columns])


def _readable_fields(topic: Topic, options: Options) -> list[Field]:
    if not options.metadata:
        return list(topic.schema)
    extra = [field for field in METADATA if field.name != "_version" or topic.settings.versioned]
    for field in extra:
        if field.name in topic.schema.names:
            raise DeclarationError(
                f"topic '{topic.name}': it has a column '{field.name}' of its own, so metadata cannot be added",
                hint="leave the option 'metadata' out",
            )
    return [*topic.schema, *extra]


def chosen_schema(topic: Topic, schema: StructType) -> pa.Schema:
    """What Spark wants to read, as Arrow: columns of the topic and metadata, by their names and with their types."""
    chosen = to_arrow_schema(schema, timezone="UTC")
    fields = {field.name: field for field in (*METADATA, *topic.schema)}
    for field, wanted in zip(chosen, schema, strict=True):
        found = fields.get(field.name)
        if found is None:
            raise _no_column(topic, field.name, list(fields))
        if found.type != field.type:
            raise DeclarationError(
                f"topic '{topic.name}': column '{field.name}' has type {from_arrow_type(found.type).simpleString()}; "
                f"the schema of this read says {wanted.dataType.simpleString()}",
                hint="leave the schema out; cast the column after reading it",
            )
        if not field.nullable and (found.nullable or DELETED in chosen.names):
            raise DeclarationError(f"topic '{topic.name}': column '{field.name}' may be null; this read says it is not")
    return chosen


def _no_column(topic: Topic, name: str, known: Sequence[str]) -> DeclarationError:
    return DeclarationError(
        f"topic '{topic.name}': there is no column '{name}'; it has {', '.join(known)}", hint=closest(name, list(known))
    )


# -- in tasks ---------------------------------------------------------------------------------------------------------


def read_split(ref: TopicRef, schema: pa.Schema, split: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a split as batches of exactly `schema`, in the order of their offsets."""
    assert isinstance(split, Split)
    if split.start >= split.end:
        return
    with plain_errors():
        topic = cached_topic(ref)
        own = [name for name in schema.names if name in topic.schema.names]
        until = {split.partition: split.end}
        batches = topic.batches({split.partition: split.start}, until=until, columns=own)
        yield from even_batches(_to_spark(topic, batch, schema) for batch in batches)


def _to_spark(topic: Topic, batch: Batch, schema: pa.Schema) -> pa.RecordBatch:
    own = dict(zip(batch.rows.schema.names, batch.rows.columns, strict=True))
    columns = [own[name] if name in own else _metadata_column(batch, name) for name in schema.names]
    for field, column in zip(schema, columns, strict=True):
        if column.type != field.type:
            raise DeclarationError(
                f"topic '{topic.name}': column '{field.name}' has become {column.type} since this query was planned",
                hint="start the query again",
            )
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if batch.deleted is not None and DELETED not in schema.names:
        return rows.filter(pc.invert(batch.deleted))
    return rows


def _metadata_column(batch: Batch, name: str) -> pa.Array[pa.Scalar[pa.DataType]]:
    rows = len(batch.offsets)
    if name == "_offset":
        return pa.array(batch.offsets)
    if name == DELETED:
        return pa.array(np.zeros(rows, dtype=np.bool_)) if batch.deleted is None else batch.deleted
    if name == "_version":
        return pa.nulls(rows, pa.int64()) if batch.versions is None else batch.versions
    if name == "_partition":
        return pa.array(np.full(rows, batch.partition, dtype=np.int32))
    return pa.array(np.full(rows, batch.append_time, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))


def even_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are neither tiny nor huge."""
    small: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows < LEAST_ROWS:
            small.append(batch)
        if small and (batch.num_rows >= LEAST_ROWS or sum(part.num_rows for part in small) >= LEAST_ROWS):
            yield _concat_batches(small)
            small = []
        if batch.num_rows >= LEAST_ROWS:
            yield from (batch.slice(start, MOST_ROWS) for start in range(0, batch.num_rows, MOST_ROWS))
    if small:
        yield _concat_batches(small)


def _concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # type: ignore[attr-defined]
