"""Structured Streaming from topic to topic: limits kept, restarts exact, every batch stored once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock import Log, TopicSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


def reading(spark: SparkSession, log: Log, topic: str, **options: str) -> DataFrame:
    return spark.readStream.format("penstock").option("log", str(log.path)).options(**options).load(topic)


def copy(frame: DataFrame, log: Log, topic: str, checkpoint: Path, **options: str) -> StreamingQuery:
    """Run a query over what is there now, to its end."""
    writing = (
        frame.writeStream.format("penstock").option("log", str(log.path)).option("topic", topic).options(**options)
    )
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def numbers(log: Log, topic: str) -> list[int]:
    return sorted(log.topic(topic).read().to_arrow().column("id").to_pylist())


def some(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(start, end))})


def staged_files(log: Log) -> list[Path]:
    return [path for path in (log.path / "staging").rglob("*") if path.is_file()]


def test_batches_keep_their_limit_and_a_restart_goes_on(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    source = log.create_topic("source", "id bigint", key="id", partitions=2)
    log.create_topic("out", "id bigint", key="id", partitions=3)
    source.append(some(0, 1000))
    first = copy(reading(spark, log, "source", maxRowsPerBatch="300"), log, "out", tmp_path / "c")
    assert batch_sizes(first) == [300, 300, 300, 100]
    assert numbers(log, "out") == list(range(1000))
    ends = {str(number): end for number, end in source.ends().items()}
    assert json.loads(first.lastProgress.sources[0].endOffset) == ends
    source.append(some(1000, 1100))
    again = copy(reading(spark, log, "source", maxRowsPerBatch="70"), log, "out", tmp_path / "c")
    assert batch_sizes(again) == [70, 30]
    assert numbers(log, "out") == list(range(1100))
    # A new query begins where it is told to; bytes are a limit too, if not an exact one.
    log.create_topic("late", "id bigint")
    source.append(some(1100, 101_100))
    options = {"from": json.dumps(ends), "maxBytesPerBatch": "300000"}
    late = copy(reading(spark, log, "source", **options), log, "late", tmp_path / "d")
    assert numbers(log, "late") == list(range(1000, 101_100))
    assert len(batch_sizes(late)) == 3
    assert staged_files(log) == []


def test_a_batch_that_spark_repeats_is_stored_once(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    source = log.create_topic("source", "id bigint")
    out = log.create_topic("out", "id bigint", key="id", partitions=2)
    source.append(some(0, 3000))
    checkpoint = tmp_path / "c"
    frame = reading(spark, log, "source", maxRowsPerBatch="2000")
    copy(frame, log, "out", checkpoint)
    before = out.ends()
    assert numbers(log, "out") == list(range(3000))
    # As if the driver had died after our commit and before Spark's own, and tasks had left files.
    (producer,) = log.producers().values()
    forgotten = log.path / "staging" / "streams" / producer / "forgotten"
    forgotten.mkdir(parents=True)
    (forgotten / "1.frames").touch()
    commits = checkpoint / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink(missing_ok=True)
    repeated = copy(frame, log, "out", checkpoint)
    assert batch_sizes(repeated) == [1000]
    assert out.ends() == before
    source.append(some(3000, 3010))
    copy(frame, log, "out", checkpoint)
    assert numbers(log, "out") == list(range(3010))
    assert staged_files(log) == []


def test_a_failing_task_leaves_nothing_and_the_batch_can_be_run_again(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    from pyspark.sql.functions import udf

    source = log.create_topic("source", "id bigint", partitions=2)
    log.create_topic("out", "id bigint")
    for number in range(2):
        source.append(some(number * 2000, number * 2000 + 2000), partition=number)
    broken = tmp_path / "broken"
    broken.touch()

    @partial(udf, returnType="long", useArrow=False)
    def fragile(number: int) -> int:
        if number == 3500 and broken.exists():
            raise ValueError("row 3500 is bad")
        return number

    frame = reading(spark, log, "source").select(fragile("id").alias("id"))
    with pytest.raises(PySparkException, match="row 3500 is bad"):
        copy(frame, log, "out", tmp_path / "c")
    assert numbers(log, "out") == []
    assert staged_files(log) == []
    broken.unlink()
    copy(frame, log, "out", tmp_path / "c")
    assert numbers(log, "out") == list(range(4000))


def test_offsets_that_retention_removed_stop_the_query(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    settings = TopicSettings(segment_bytes=1000, retention_bytes=2000)
    source = log.create_topic("source", "id bigint", settings=settings)
    log.create_topic("out", "id bigint")
    source.append(some(0, 10))
    copy(reading(spark, log, "source"), log, "out", tmp_path / "c")
    for start in range(10, 1000, 100):
        source.append(some(start, start + 100))
    first = source.starts()[0]
    assert first > 10
    with pytest.raises(PySparkException) as raised:
        copy(reading(spark, log, "source"), log, "out", tmp_path / "c")
    assert f"topic 'source' partition 0: offset 10 does not exist; it has {first} to" in str(raised.value)


def test_a_producer_name_belongs_to_one_checkpoint(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    source = log.create_topic("source", "id bigint")
    log.create_topic("out", "id bigint")
    source.append(some(0, 30))
    frame = reading(spark, log, "source", maxRowsPerBatch="10")
    copy(frame, log, "out", tmp_path / "c", producer="copier")
    assert list(log.producers().values()) == ["copier"]
    with pytest.raises(PySparkException) as raised:
        copy(frame, log, "out", tmp_path / "other", producer="copier")
    assert "producer 'copier': batch 0 comes after batch 2 was stored" in str(raised.value)
    assert numbers(log, "out") == list(range(30))
    # Another checkpoint without a name is another producer, so its rows count as new.
    copy(frame, log, "out", tmp_path / "other")
    assert numbers(log, "out") == sorted([*range(30)] * 2)
    totals = frame.groupBy().count().selectExpr("count as id")
    writing = totals.writeStream.format("penstock").option("log", str(log.path)).outputMode("complete")
    query = writing.option("checkpointLocation", str(tmp_path / "all")).start("out")
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination()
    assert "topic 'out': a log is only appended to; it cannot be overwritten" in str(raised.value)


def test_a_query_without_its_own_checkpoint_needs_a_producer_name(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.create_topic("source", "id bigint").append(some(0, 3))
    log.create_topic("out", "id bigint")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        writing = reading(spark, log, "source").writeStream.format("penstock").option("log", str(log.path))
        writing = writing.queryName("nameless").trigger(availableNow=True)
        with pytest.raises(PySparkException) as raised:
            writing.start("out").awaitTermination()
        assert "the id of the query cannot be found without an option 'checkpointLocation'" in str(raised.value)
        assert "option('producer'" in str(raised.value)
        writing.option("producer", "named").start("out").awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert numbers(log, "out") == [0, 1, 2]
