"""`df.write.format("penstock")`: all rows or none, by the topic's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock import Log, TopicSettings
from penstock.engine.datasource.write import chunks
from penstock.schema.hashing import hash_keys, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


def append(frame: DataFrame, log: Log, topic: str) -> None:
    frame.write.format("penstock").option("log", str(log.path)).mode("append").save(topic)


def staged_files(log: Log) -> list[Path]:
    return [path for path in (log.path / "staging").rglob("*") if path.is_file()]


def test_rows_go_where_their_keys_belong(spark: SparkSession, log: Log) -> None:
    schema = "id bigint, name string, amount decimal(10,2), at timestamp, tags array<string>"
    topic = log.create_topic("orders", schema, key="id", time="at", partitions=3)
    # Another order of the columns, a narrower type, and one column less: each fits without loss.
    frame = spark.range(20_000).selectExpr(
        "timestamp_seconds(id) as at",
        "cast(id as int) as id",
        "cast(id as decimal(9,1)) as amount",
        "array('x') as tags",
    )
    append(frame, log, "orders")
    # Large parts of the two tasks are stored as they were staged, one frame for each task and partition.
    assert sum(1 for _ in topic.batches()) == 6
    append(frame.limit(3), log, "orders")
    assert sorted(topic.read().to_arrow().column("id").to_pylist()) == sorted([*range(20_000), 0, 1, 2])
    assert topic.read().to_arrow().filter(pa.compute.field("id") == 7).to_pylist()[0]["tags"] == ["x"]
    for batch in topic.batches():
        assert set(partition_of(hash_keys([batch.rows.column("id")]), 3)) == {batch.partition}
    assert staged_files(log) == []


def test_without_a_key_tasks_take_turns_at_the_partitions(spark: SparkSession, log: Log) -> None:
    topic = log.create_topic("events", "id bigint", partitions=2)
    append(spark.range(0, 100, 1, 4), log, "events")
    assert topic.ends() == {0: 50, 1: 50}


def test_a_failing_row_leaves_nothing_behind(spark: SparkSession, log: Log) -> None:
    from pyspark.sql.functions import udf

    topic = log.create_topic("orders", "id bigint", key="id", partitions=2)
    topic.append([{"id": 0}])

    @partial(udf, returnType="long", useArrow=False)
    def fragile(number: int) -> int:
        if number == 7_000:
            raise ValueError("row 7000 is bad")
        return number

    with pytest.raises(PySparkException, match="row 7000 is bad"):
        append(spark.range(10_000).select(fragile("id").alias("id")), log, "orders")
    assert len(topic.read()) == 1
    assert staged_files(log) == []


def test_what_a_topic_cannot_hold_is_refused_by_name(spark: SparkSession, log: Log) -> None:
    log.create_topic("orders", "id bigint, name string, weight int not null", key="id")
    good = spark.range(10).selectExpr("id", "'x' as name", "1 as weight")
    for frame, message in [
        (good.selectExpr("id", "1 as weight", "1 as nmae"), "a column that is not in the schema; found 'nmae'"),
        (good.selectExpr("id", "id as name", "1 as weight"), "column 'name' takes string; found int64"),
        (good.select("id", "name"), "column 'weight' is not null, but the batch lacks it"),
        (good.selectExpr("nullif(id, 3) as id", "weight"), "the key column 'id' is null in row 3"),
        (good.selectExpr("id", "id * 3000000000 as weight"), "row 1, column 'weight' takes int; found 3000000000"),
        (good.selectExpr("id", "weight", "1 as _deleted"), "column '_deleted' takes boolean; found int32"),
    ]:
        with pytest.raises(PySparkException) as raised:
            append(frame.coalesce(1), log, "orders")
        said = str(raised.value).split("hint:")[0]
        assert "topic 'orders': " in said
        assert message in said
    writing = good.write.format("penstock").option("log", str(log.path))
    with pytest.raises(PySparkException, match="topic 'orders': a log is only appended to; it cannot be overwritten"):
        writing.mode("overwrite").save("orders")
    with pytest.raises(PySparkException, match="topic 'nothing': it does not exist"):
        writing.mode("append").save("nothing")
    assert len(log.topic("orders").read()) == 0
    assert staged_files(log) == []


def test_deletes_and_versions_are_written_too(spark: SparkSession, log: Log) -> None:
    settings = TopicSettings(key=("id",), versioned=True, partitions=2)
    topic = log.create_topic("accounts", "id bigint, name string not null", settings=settings)
    append(
        spark.range(3000)
        .selectExpr("id % 3 as id", "'n' as name", "null as _deleted")
        .withColumn("_deleted", _false()),
        log,
        "accounts",
    )
    append(
        spark.range(3).selectExpr("id", "cast(null as string) as name", "id = 1 as _deleted").where("id = 1"),
        log,
        "accounts",
    )
    versions: dict[int, list[int]] = {0: [], 1: [], 2: []}
    deleted = []
    for batch in topic.batches():
        assert batch.versions is not None
        for number, row in enumerate(batch.rows.to_pylist()):
            versions[row["id"]].append(batch.versions[number].as_py())
            if batch.deleted is not None and batch.deleted[number].as_py():
                deleted.append(row)
    assert versions == {0: [*range(1, 1001)], 1: [*range(1, 1002)], 2: [*range(1, 1001)]}
    assert deleted == [{"id": 1, "name": None}]


def _false() -> object:
    from pyspark.sql.functions import lit

    return lit(False)


def test_chunks_keep_the_rows_and_the_limits() -> None:
    batches = [pa.record_batch({"a": pa.array(range(start, start + 100))}) for start in range(0, 1000, 100)]
    for rows, size in [(250, 10**9), (10**9, 2000), (30, 10**9), (10**9, 1)]:
        found = list(chunks(batches, rows=rows, size=size))
        assert pa.concat_tables(found).column("a").to_pylist() == list(range(1000))
        assert all(one.num_rows <= rows and (one.nbytes <= size or one.num_rows == 1) for one in found)
