"""Writing to a topic with Spark: tasks stage encoded frames, the driver commits all of them in one transaction.

1. The driver checks the columns and makes a staging folder.
2. Each task checks and encodes its rows, sorted by the topic's own partitioning, into a file of that folder.
3. The driver maps the files and commits their frames in one transaction. For a stream, that is the transaction of a
   named producer with the batch's number as its sequence, so a batch that Spark runs again changes nothing.
4. The folder goes; also if the write failed, or left one behind when it crashed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.contracts import DELETED
from penstock.contracts import Topic as AnyTopic
from penstock.engine.datasource.options import WHERE, Options
from penstock.engine.datasource.topic import TopicRef, cached_topic, fresh_topic, plain_errors, topic_ref
from penstock.errors import DeclarationError, RowError
from penstock.log import Log, StagedRows, Staging, Topic
from penstock.logs import open_log
from penstock.names import NAME_PATTERN
from penstock.schema.rows import batch_to_schema

# How much of a task's rows is sorted and encoded at a time, for all partitions together.
CHUNK_ROWS = 128 * 1024
CHUNK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """What a task tells the driver."""

    staged: StagedRows


class BatchWriter(DataSourceArrowWriter):
    """Appends all rows of a DataFrame, or none. Made on the driver, used there and in tasks."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        self._topic = _checked_topic(options, schema, overwrite=overwrite)  # 1
        with _writable_log(options.log) as log:
            self._staging = Staging.begin(log.path)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Message:  # type: ignore[override]
        return stage(self._topic, self._staging, batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with plain_errors(), _writable_log(self._topic.log) as log:
            log.commit_staged(self._topic.topic, staged_rows(messages))  # 3
        self._staging.remove()  # 4

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._staging.remove()  # 4


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch exactly once. Spark makes one for each batch's tasks, and another to commit it."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        self._topic = _checked_topic(options, schema, overwrite=overwrite)  # 1
        self._producer = producer_name(options)
        with _writable_log(options.log) as log:
            self._staging = Staging.begin(log.path, producer=self._producer)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Message:  # type: ignore[override]
        return stage(self._topic, self._staging, batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with plain_errors(), _writable_log(self._topic.log) as log:
            log.commit_staged(self._topic.topic, staged_rows(messages), producer=self._producer, sequence=batchId)  # 3
        self._staging.remove()  # 4

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._staging.remove()  # 4


def staged_rows(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message.staged for message in messages if isinstance(message, Message)]


@contextmanager
def _writable_log(url: str) -> Iterator[Log]:
    """The log, for as long as it is needed. Only the embedded log can take rows that tasks have staged."""
    with closing(open_log(url)) as log:
        if not isinstance(log, Log):
            raise DeclarationError(
                f"{WHERE}: Spark can read this log, and not write to it; found '{url}'",
                hint="write to a log in a folder, or write with the tools of that log",
            )
        yield log


# -- step 1 -----------------------------------------------------------------------------------------------------------


def _checked_topic(options: Options, schema: StructType, *, overwrite: bool) -> TopicRef:
    with fresh_topic(options) as topic:
        if overwrite:
            raise DeclarationError(
                f"topic '{topic.name}': a log is only appended to; it cannot be overwritten",
                hint="write with mode('append'), a stream with outputMode('append') or 'update'",
            )
        rows = to_arrow_schema(schema, timezone="UTC").empty_table()
        batch_to_schema(_without_marks(topic, rows)[0], topic.schema, where=f"topic '{topic.name}'")
        return topic_ref(options.log, topic)


def producer_name(options: Options) -> str:
    """The name under which a stream's batches are counted; the same whenever the query starts from its checkpoint.

    Not a name made of the checkpoint's path: whoever removes a checkpoint begins again with batch 0, and that would be
    taken for a repeat.
    """
    name = options.producer or f"spark-{_query_id(options)}"
    if not NAME_PATTERN.fullmatch(name):
        raise DeclarationError(
            f"producer '{name}': this is not a name for a producer",
            hint="use 1 to 200 letters, digits, dots, dashes and underscores, beginning with a letter or a digit",
        )
    return name


def _query_id(options: Options) -> str:
    where = f"topic '{options.topic}': the id of the query cannot be found"
    hint = "name the query's producer: .option('producer', '<name>'), another name for each query and checkpoint"
    location = urlsplit(options.checkpoint or "")
    if not location.path or location.scheme not in ("", "file"):
        found = f"in '{options.checkpoint}'" if options.checkpoint else "without an option 'checkpointLocation'"
        raise DeclarationError(f"{where} {found}", hint=hint)
    path = Path(unquote(location.path) if location.scheme else str(options.checkpoint)) / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DeclarationError(f"{where} in {path}", hint=hint) from None


# -- step 2 -----------------------------------------------------------------------------------------------------------


def stage(ref: TopicRef, staging: Staging, batches: Iterable[pa.RecordBatch]) -> Message:
    """Encode the rows of one task and write them to a file of the staging folder. Tasks begin in different turns."""
    with plain_errors():
        topic = cached_topic(ref)
        assert isinstance(topic, Topic)
        context = TaskContext.get()
        size = min(CHUNK_BYTES, topic.settings.max_batch_bytes // 2)
        rows = (_without_marks(topic, chunk) for chunk in chunks(batches, rows=CHUNK_ROWS, size=size))
        return Message(staging.stage(topic, rows, turn=context.partitionId() if context else 0))


def chunks(batches: Iterable[pa.RecordBatch], *, rows: int, size: int) -> Iterator[pa.Table]:
    """The same rows in tables of at most `rows` rows and about `size` bytes."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = waiting_size = 0
    for batch in batches:
        waiting.append(batch)
        waiting_rows += batch.num_rows
        waiting_size += batch.nbytes
        if waiting_rows >= rows or waiting_size >= size:
            yield from _pieces(pa.Table.from_batches(waiting), rows=rows, size=size)
            waiting, waiting_rows, waiting_size = [], 0, 0
    if waiting:
        yield from _pieces(pa.Table.from_batches(waiting), rows=rows, size=size)


def _pieces(table: pa.Table, *, rows: int, size: int) -> Iterator[pa.Table]:
    most = max(1, min(rows, table.num_rows * size // max(1, table.nbytes)))
    yield from (table.slice(start, most) for start in range(0, table.num_rows, most))


def _without_marks(topic: AnyTopic, rows: pa.Table) -> tuple[pa.Table, pa.BooleanArray | None]:
    """A column _deleted that the topic does not have itself says which rows delete their key, as it does in reads."""
    if DELETED in topic.schema.names or DELETED not in rows.schema.names:
        return rows, None
    marks = rows.column(DELETED).combine_chunks()
    if not isinstance(marks, pa.BooleanArray):
        raise RowError(f"topic '{topic.name}': column '{DELETED}' takes boolean; found {marks.type}")
    return rows.drop_columns([DELETED]), pc.and_kleene(marks, marks.is_valid())
