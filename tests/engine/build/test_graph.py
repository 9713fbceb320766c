"""Rows that came to a task with the state of other rows are refused, before they are added to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.engine.build import graph
from penstock.engine.build.graph import STATE_PARTITION, Graph, map_in_arrow, row_hash, with_key_hashes
from penstock.engine.build.needs import Needs
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _task_one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "assignment", lambda: SimpleNamespace(partitions=2))
    monkeypatch.setattr(graph, "state_partition", lambda partitions: 1)


def batch(*shares: int) -> pa.RecordBatch:
    return pa.record_batch({"k": list(range(len(shares))), STATE_PARTITION: pa.array(shares, pa.int32())})


def test_rows_in_their_place_go_on_without_saying_where_it_is() -> None:
    run = graph._check_partitions("sums", lambda batches: batches)
    (found,) = run(iter([batch(1, 1)]))
    assert found.to_pydict() == {"k": [0, 1]}


def test_rows_of_another_partition_are_refused() -> None:
    run = graph._check_partitions("sums", lambda batches: batches)
    with pytest.raises(DeclarationError, match="state sums: task 1 got 1 rows of others, such as 0"):
        list(run(iter([batch(1, 1), batch(1, 0)])))


def test_spark_brings_rows_where_their_share_says(spark: SparkSession) -> None:
    made = Graph(spark, 5, Needs({}, frozenset()), frozenset(), frozenset())
    rows = spark.createDataFrame([(n, None if n % 7 == 0 else str(n)) for n in range(100)], "a int, `b c` string")
    together = made.partition_by(rows, ["a", "b c"])
    found = (
        together.selectExpr("spark_partition_id() AS task", "*")
        .select("task", made.state_partition(["a", "b c"]))
        .collect()
    )
    assert {row["task"] == row[STATE_PARTITION] for row in found} == {True}


def test_rows_that_differ_only_in_where_they_are_null_have_different_hashes(spark: SparkSession) -> None:
    schema = "a int, b int, list array<int>, part struct<x: int, y: struct<z: int>>, entries map<string, int>"
    schema += ", more array<int>"
    rows = [
        (1, None, None, None, None),
        (None, 1, None, None, None),
        (None, None, None, None, None),
        (None, None, [], None, None),
        (None, None, [None], None, None),
        (None, None, [1], None, None),
        (None, None, [1, None], None, None),
        (None, None, [None, 1], None, None),
        (None, None, None, (None, None), None),
        (None, None, None, (1, None), None),
        (None, None, None, (None, (1,)), None),
        (None, None, None, (None, (None,)), None),
        (None, None, None, None, {}),
        (None, None, None, None, {"a": None}),
        (None, None, None, None, {"a": 1}),
    ]
    rows = [(*row, None) for row in rows] + [(None, None, [1], None, None, []), (None, None, [], None, None, [1])]
    frame = spark.createDataFrame(rows, schema)
    names = frame.columns
    found = with_key_hashes(frame, names, row_hash(frame, names).alias("row")).select("_h1", "_h2", "row").collect()
    for column in range(3):
        assert len({row[column] for row in found}) == len(rows)


def test_columns_of_any_name_go_through_arrow(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 2)], "`a.b` int, `c``d` int")
    output = pa.schema([("a.b", pa.int32()), ("c`d", pa.int32())])
    found = map_in_arrow(rows, lambda batches: batches, output)
    assert [row.asDict() for row in found.collect()] == [{"a.b": 1, "c`d": 2}]
