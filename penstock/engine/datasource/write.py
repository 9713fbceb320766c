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
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.engine.datasource.options import Options
from penstock.engine.datasource.read import DELETED
from penstock.engine.datasource.staging import (
    BATCHES,
    STREAMS,
    Staged,
    body_for,
    new_folder,
    remove_folder,
    staged_file,
    staged_requests,
    stream_folder,
)
from penstock.engine.datasource.topic import Place, fresh_topic, kept_topic, place_of, plain_errors
from penstock.errors import DeclarationError, FencedError, RowError
from penstock.log import Log, Producer, Topic, Transaction
from penstock.log.names import NAME_PATTERN
from penstock.log.rows import batch_to_schema

# How much of a task's rows is sorted and encoded at a time, for all partitions together.
CHUNK_ROWS = 128 * 1024
CHUNK_BYTES = 16 * 1024 * 1024
# The partitions are locked while a commit copies its frames, and others wait at most 30 seconds for that.
MOST_STAGED_BYTES = 2 * 1024 * 1024 * 1024


class BatchWriter(DataSourceArrowWriter):
    """Appends all rows of a DataFrame, or none. Made on the driver, used there and in tasks."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._place = _checked_place(options, schema, overwrite=overwrite)  # 1
        self._folder = new_folder(options.log, BATCHES)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]
        return stage(self._place, self._folder, batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with plain_errors(), Log(self._options.log, create=False) as log:
            commit_staged(log, log.transaction(), self._options.topic, messages)
        remove_folder(self._options.log, self._folder)  # 4

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        remove_folder(self._options.log, self._folder)  # 4


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch exactly once. Spark makes one for each batch's tasks, and another to commit it."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._place = _checked_place(options, schema, overwrite=overwrite)  # 1
        self._producer = producer_name(options)
        self._folder = new_folder(options.log, STREAMS, self._producer)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]
        return stage(self._place, self._folder, batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with plain_errors(), Log(self._options.log, create=False) as log:
            producer = log.producer(self._producer)
            _refuse_older(producer, batchId)
            commit_staged(log, log.transaction(producer, sequence=batchId), self._options.topic, messages)  # 3
        self._remove_folders()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._remove_folders()

    def _remove_folders(self) -> None:
        """Step 4, for every batch of this query: one at a time is written, so nothing else is needed any more."""
        remove_folder(self._options.log, stream_folder(self._options.log, self._producer))


# -- step 1 -----------------------------------------------------------------------------------------------------------


def _checked_place(options: Options, schema: StructType, *, overwrite: bool) -> Place:
    with fresh_topic(options) as topic:
        if overwrite:
            raise DeclarationError(
                f"topic '{topic.name}': a log is only appended to; it cannot be overwritten",
                hint="write with mode('append'), a stream with outputMode('append') or 'update'",
            )
        rows = to_arrow_schema(schema, timezone="UTC").empty_table()
        batch_to_schema(_without_marks(topic, rows)[0], topic.schema, where=f"topic '{topic.name}'")
        return place_of(options, topic)


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


def stage(place: Place, folder: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Encode the rows of one task and write them to a file of the folder."""
    with plain_errors(), staged_file(folder) as file:
        topic = kept_topic(place)
        context = TaskContext.get()
        turn = context.partitionId() if context else 0
        for chunk in chunks(batches, rows=CHUNK_ROWS, size=min(CHUNK_BYTES, topic.settings.max_batch_bytes // 2)):
            rows, marks = _without_marks(topic, chunk)
            # Without a key all rows of a chunk go to one partition. Tasks begin with different ones.
            partition = None if topic.settings.key else turn % topic.settings.partitions
            for number, request in topic.requests(rows, deleted=marks, partition=partition).items():
                file.add(number, body_for(topic, request))
            turn += 1
        return file.staged()


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


def _without_marks(topic: Topic, rows: pa.Table) -> tuple[pa.Table, pa.BooleanArray | None]:
    """A column _deleted that the topic does not have itself says which rows delete their key, as it does in reads."""
    if DELETED in topic.schema.names or DELETED not in rows.schema.names:
        return rows, None
    marks = rows.column(DELETED).combine_chunks()
    if not isinstance(marks, pa.BooleanArray):
        raise RowError(f"topic '{topic.name}': column '{DELETED}' takes boolean; found {marks.type}")
    return rows.drop_columns([DELETED]), pc.and_kleene(marks, marks.is_valid())


# -- step 3 -----------------------------------------------------------------------------------------------------------


def _refuse_older(producer: Producer, batch: int) -> None:
    """Spark repeats its last batch only. One from before that means another checkpoint, so its rows may be others."""
    last = producer.last_transaction()
    if batch < last:
        raise FencedError(
            f"producer '{producer.name}': batch {batch} comes after batch {last} was stored; "
            "this is another checkpoint or another query under the same name",
            hint="give this query a producer name of its own: .option('producer', '<name>')",
        )


def commit_staged(
    log: Log, transaction: Transaction, name: str, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Commit everything that the tasks have staged."""
    topic = log.topic(name)
    stored = 0
    with transaction:
        for partition, request in staged_requests(topic, [one for one in messages if isinstance(one, Staged)]):
            stored += request.body.length if request.body else request.batch.nbytes
            transaction.add(topic, partition, request)
        if stored > MOST_STAGED_BYTES:
            raise RowError(
                f"topic '{topic.name}': {stored} bytes were written at once; {MOST_STAGED_BYTES} are allowed",
                hint="write in several parts, or limit the size of the stream's batches",
            )
