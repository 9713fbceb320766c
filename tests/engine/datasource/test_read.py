"""`spark.read.format("penstock")`: what was appended is what Spark reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock import Log, TopicSettings
from penstock.engine.datasource.options import Options
from penstock.engine.datasource.read import LEAST_ROWS, MOST_ROWS, even_batches, plan_splits, positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

EVERY_TYPE = """id bigint not null, flag boolean, tiny tinyint, small smallint, whole int, real float, wide double,
    amount decimal(10,2), huge decimal(38,6), name string, raw binary, day date, moment timestamp, local timestamp_ntz,
    tags array<string>, scores map<string,double>, place struct<city:string,at:struct<lat:double,lon:double>>,
    visits array<struct<page:string,seen:timestamp>>"""

ROWS: list[dict[str, object]] = [
    {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "whole": -5,
        "real": 0.5,
        "wide": 1e300,
        "amount": Decimal("12345678.90"),
        "huge": Decimal("-12345678901234567890123456789012.345678"),
        "name": "Zoë",
        "raw": b"\x00\xff",
        "day": date(1969, 12, 31),
        "moment": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
        "local": datetime(2026, 1, 31, 12, 0, 0, 1),  # noqa: DTZ001 - the column is one without a zone
        "tags": ["a", None, ""],
        "scores": {"x": 1.5, "y": None},
        "place": {"city": "Graz", "at": {"lat": 47.07, "lon": None}},
        "visits": [{"page": "/", "seen": datetime(2026, 1, 1, tzinfo=UTC)}, None],
    },
    {"id": 2},
    {"id": 3, "tags": [], "scores": {}, "place": {"city": None, "at": None}, "visits": []},
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


def reading(spark: SparkSession, log: Log) -> DataFrameReader:
    return spark.read.format("penstock").option("log", str(log.path))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


def test_every_type_is_read_as_it_was_appended(spark: SparkSession, log: Log) -> None:
    topic = log.create_topic("things", EVERY_TYPE, key="id", partitions=2)
    topic.append(ROWS)
    stored = topic.read().to_arrow()
    # Spark names the timestamps' zone after the session, and the items of arrays and maps in its own way.
    found = reading(spark, log).load("things").toArrow().cast(stored.schema)
    assert found.sort_by("id").to_pylist() == stored.sort_by("id").to_pylist()

    some = reading(spark, log).option("topic", "things").option("columns", "name, id").load()
    assert some.columns == ["name", "id"]
    chosen = reading(spark, log).schema("id long, day date").load("things")
    rows = sorted(some.join(chosen, "id").collect())
    assert [(row.id, row.name, row.day) for row in rows] == [
        (1, "Zoë", date(1969, 12, 31)),
        (2, None, None),
        (3, None, None),
    ]


def test_a_range_is_given_by_offsets_or_times(spark: SparkSession, log: Log) -> None:
    topic = log.create_topic("orders", "id bigint, at timestamp", time="at", partitions=2)
    for hour in range(10):
        at = datetime(2026, 1, 1, hour, tzinfo=UTC)
        topic.append([{"id": hour * 10, "at": at}, {"id": hour * 10 + 1, "at": at}], partition=hour % 2)
    for start, until, hours in [
        ("start", "end", range(10)),
        ("end", "end", ()),
        ("4", "8", range(4, 8)),
        ('{"1": 6}', '{"0": 4}', [0, 2, 7, 9]),
        ("2026-01-01T03:00:00Z", "2026-01-01T05:00:00+00:00", [3, 4]),
    ]:
        frame = reading(spark, log).option("from", start).option("until", until).load("orders")
        assert ids(frame) == sorted(hour * 10 + one for hour in hours for one in range(2)), (start, until)


def test_a_frame_is_a_snapshot_of_when_it_was_first_read(spark: SparkSession, log: Log) -> None:
    topic = log.create_topic("orders", "id bigint")
    topic.append([{"id": 1}])
    frame = reading(spark, log).load("orders")
    topic.append([{"id": 2}])
    assert ids(frame) == [1, 2]
    topic.append([{"id": 3}])
    assert ids(frame) == [1, 2]
    assert ids(reading(spark, log).load("orders")) == [1, 2, 3]


def test_metadata_tells_offsets_deletes_and_versions(spark: SparkSession, log: Log) -> None:
    topic = log.create_topic(
        "accounts", "id bigint, name string not null", settings=TopicSettings(key=("id",), partitions=2, versioned=True)
    )
    topic.append([{"id": one, "name": f"n{one}"} for one in range(6)])
    topic.append([{"id": 3, "name": "later"}])
    topic.delete([{"id": 4}])
    frame = reading(spark, log).option("metadata", "true").load("accounts")
    assert frame.columns == ["id", "name", "_partition", "_offset", "_append_time", "_deleted", "_version"]
    found = sorted(
        (row["_partition"], row["_offset"], row.id, row.name, row["_deleted"], row["_version"])
        for row in frame.collect()
    )
    expected = []
    for batch in topic.batches():
        assert batch.versions is not None
        marks = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
        columns = zip(batch.offsets.tolist(), batch.rows.to_pylist(), marks, batch.versions.to_pylist(), strict=True)
        expected += [
            (batch.partition, offset, row["id"], row["name"], mark, version) for offset, row, mark, version in columns
        ]
    assert found == sorted(expected)
    assert [row[2:] for row in found if row[4]] == [(4, None, True, 2)]
    times = {row[0] for row in frame.selectExpr("cast(_append_time as string)").collect()}
    assert all(time.startswith(str(datetime.now(UTC).year)) for time in times)
    # Without metadata, a row that only deletes its key is no row.
    assert ids(reading(spark, log).load("accounts")) == [0, 1, 2, 3, 3, 4, 5]


def test_a_worker_that_read_a_topic_before_sees_its_new_schema_and_its_successor(spark: SparkSession, log: Log) -> None:
    topic = log.create_topic("orders", "id int")
    topic.append([{"id": 1}])
    assert reading(spark, log).load("orders").collect() == [(1,)]
    topic.evolve("id bigint, note string")
    topic.append([{"id": 2**40, "note": "new"}])
    assert sorted(reading(spark, log).load("orders").collect()) == [(1, None), (2**40, "new")]
    log.drop_topic("orders")
    log.create_topic("orders", "name string").append([{"name": "successor"}])
    assert reading(spark, log).load("orders").collect() == [("successor",)]


def test_mistakes_are_told_in_our_words_first(spark: SparkSession, log: Log) -> None:
    log.create_topic("orders", "id bigint, amount decimal(10,2)").append([{"id": 1}])
    good = reading(spark, log)
    for frame, message in [
        (lambda: good.load("odrers"), "topic 'odrers': it does not exist in"),
        (lambda: good.load(), "format 'penstock': it is not said which topic"),
        (lambda: spark.read.format("penstock").load("orders"), "format 'penstock': it is not said which log"),
        (lambda: reading(spark, log).option("colums", "id").load("orders"), "there is no option 'colums' here"),
        (lambda: reading(spark, log).option("columns", "ib").load("orders"), "topic 'orders': there is no column 'ib'"),
        (lambda: reading(spark, log).schema("id int").load("orders").collect(), "column 'id' has type bigint"),
        (lambda: reading(spark, log).option("from", "noon").load("orders").collect(), "'noon' is not a position"),
        (
            lambda: reading(spark, log).option("from", "7").load("orders").collect(),
            "offset 7 does not exist; it has 0 to 1",
        ),
    ]:
        with pytest.raises(PySparkException) as raised:
            frame()
        said = str(raised.value)
        assert message in said.splitlines()[0], said
        assert "Traceback" not in said


@pytest.mark.usefixtures("spark")  # where that one cannot start, this one cannot
def test_a_fresh_session_knows_the_format_without_registering_it(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", "id bigint").append([{"id": 1}, {"id": 2}])
    program = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
orders = spark.read.format("penstock").option("log", sys.argv[1]).load("orders")
orders.selectExpr("id + 10 as id").write.format("penstock").option("log", sys.argv[1]).mode("append").save("orders")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with Log(tmp_path / "log") as log:
        assert log.topic("orders").read().to_arrow().column("id").to_pylist() == [1, 2, 11, 12]


def test_a_large_partition_is_cut_into_splits_that_begin_with_frames(log: Log) -> None:
    topic = log.create_topic("numbers", "a bigint, b bigint", partitions=2, settings=TopicSettings(durability="os"))
    for _ in range(40):
        column = pa.array(range(50_000))
        topic.append(pa.record_batch({"a": column, "b": column}), partition=0)
    topic.append([{"a": 1, "b": 1}], partition=1)
    splits = plan_splits(topic, topic.starts(), topic.ends())
    first = [split for split in splits if split.partition == 0]
    # 32 MB in splits of at least 4 MiB, and a partition of one row.
    assert len(first) == 8
    assert [split.start for split in first] == [0, *(split.end for split in first[:-1])]
    assert first[-1].end == 2_000_000
    assert all(split.start % 50_000 == 0 for split in first)
    assert [(split.start, split.end) for split in splits if split.partition == 1] == [(0, 1)]
    options = Options("", "numbers", start={0: 1_999_999})
    end = plan_splits(topic, positions(topic, options.start, unnamed="end"), topic.ends())
    assert [(split.partition, split.start, split.end) for split in end] == [(0, 1_999_999, 2_000_000)]


def test_small_frames_are_put_together_and_large_ones_passed_on_uncopied() -> None:
    def batch(rows: int) -> pa.RecordBatch:
        return pa.record_batch({"a": pa.array(range(rows))})

    large = batch(MOST_ROWS + 1)
    given = [batch(1), batch(LEAST_ROWS - 1), batch(5), large, batch(3), batch(4)]
    found = list(even_batches(iter(given)))
    assert [one.num_rows for one in found] == [LEAST_ROWS, 5, MOST_ROWS, 1, 7]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(given)
    assert found[2].column(0).buffers()[1].address == large.column(0).buffers()[1].address
