"""Calls over rows that stand once with how often they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.engine.build.weighing import restrict_to_live_rows, weighted_call
from penstock.flow.expressions import Call, split_aggregates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(text: str) -> Call:
    return split_aggregates(text).calls[0]


@pytest.mark.parametrize(
    ("text", "live"),
    [
        ("sum(v)", "sum(v) FILTER (WHERE _times > 0)"),
        ("first(v) ignore nulls", "first(v)  FILTER (WHERE _times > 0) ignore nulls"),
        ("sum(v) filter (where v > 1)", "sum(v) filter (where (v > 1) AND _times > 0)"),
        ("first(n) filter (where n) ignore nulls", "first(n) filter (where (n) AND _times > 0) ignore nulls"),
        (
            "listagg(k) within group (order by k) filter (where k <> 'filter (where')",
            "listagg(k) within group (order by k) filter (where (k <> 'filter (where') AND _times > 0)",
        ),
    ],
)
def test_rows_that_only_say_that_their_group_was_touched_are_left_out(text: str, live: str) -> None:
    assert restrict_to_live_rows(call(text)).strip() == live


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("count(*)", 6),
        ("count(v)", 5),
        ("count(v) filter (where v > 1)", 3),
        ("sum(v)", 8),
        ("sum(v) filter (where v > 9)", None),
        ("percentile(v, 0.5)", 2.0),
        ("percentile(v, 0.5, v)", 2.0),
        ("median(v)", 2.0),
        ("max(v)", 2),
        ("sum(distinct v)", 3),
        ("collect_set(v)", [1, 2]),
        ("bit_or(v)", 3),
    ],
)
def test_a_weighed_call_gives_what_it_would_give_over_repeated_rows(
    spark: SparkSession, text: str, repeated: object
) -> None:
    rows = spark.createDataFrame([(1, 2), (2, 3), (None, 1), (7, 0)], "v int, _times bigint")
    weighed_text = weighted_call(call(text), rows)
    assert weighed_text is not None
    found = rows.selectExpr(weighed_text).collect()[0][0]
    assert (sorted(found) if isinstance(found, list) else found) == repeated


@pytest.mark.parametrize("text", ["stddev(v)", "collect_list(v)", "bit_xor(v)", "avg(v)", "first(v) ignore nulls"])
def test_other_calls_need_their_rows_repeated(spark: SparkSession, text: str) -> None:
    assert weighted_call(call(text), spark.createDataFrame([(1, 2)], "v int, _times bigint")) is None
