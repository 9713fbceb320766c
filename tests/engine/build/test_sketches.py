"""Which sketches are kept, and that Spark has what puts them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.build.accumulators import as_accumulators
from penstock.engine.build.sketches import UNIONS
from penstock.flow.accumulators import SKETCHES
from penstock.flow.expressions import Call, split_aggregates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(text: str) -> Call:
    return split_aggregates(text).calls[0]


def test_what_is_told_about_sketches_is_what_is_done() -> None:
    assert {*UNIONS, "approx_count_distinct"} == SKETCHES


@pytest.mark.parametrize(
    ("text", "estimate"),
    [
        ("hll_sketch_agg(v, 10)", "hll_sketch_estimate"),
        ("theta_sketch_agg(v, 10) filter (where v > 1)", "theta_sketch_estimate"),
        ("kll_sketch_agg_bigint(v, 100)", "kll_sketch_get_n_bigint"),
        ("kll_sketch_agg_float(float(v))", "kll_sketch_get_n_float"),
        ("kll_sketch_agg_double(double(v))", "kll_sketch_get_n_double"),
        ("tuple_sketch_agg_double(v, 1D, 10, 'max')", "tuple_sketch_estimate_double"),
        ("tuple_sketch_agg_integer(v, 1)", "tuple_sketch_estimate_integer"),
    ],
)
def test_two_sketches_become_one_of_all_rows(spark: SparkSession, text: str, estimate: str) -> None:
    rows = spark.range(60).selectExpr("id AS v", "id % 3 AS part")
    made = as_accumulators(call(text), "_a0", rows, sessions=False)
    assert made is not None
    (accumulator,) = made.accumulators
    parts = rows.groupBy("part").agg(_named(text, "_a0"))
    once = parts.where("part < 2").groupBy().agg(_named(accumulator.gather, "_stored_a0"))
    assert accumulator.join is not None
    joined = once.crossJoin(parts.where("part = 2")).selectExpr(f"{estimate}({accumulator.join})")
    whole = rows.groupBy().agg(_named(text, "s")).selectExpr(f"{estimate}(s)")
    assert joined.collect()[0][0] == pytest.approx(whole.collect()[0][0], rel=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "hll_sketch_agg(v)",
        "approx_count_distinct(v)",
        "bitmap_construct_agg(v)",
        "bitmap_or_agg(cast(v as string)::binary)",
    ],
)
def test_sketches_are_not_kept_where_rows_may_be_taken_back(spark: SparkSession, text: str) -> None:
    rows = spark.range(1).selectExpr("id AS v")
    assert as_accumulators(call(text), "_a0", rows, sessions=False) is not None
    assert as_accumulators(call(text), "_a0", rows.selectExpr("*", "1L AS _weight"), sessions=False) is None


@pytest.mark.parametrize(
    "text",
    [
        "approx_percentile(v, 0.5)",
        "approx_top_k(v)",
        "count_min_sketch(v, 0.5, 0.5, 1)",
        "approx_count_distinct(map(v, v))",
        "approx_count_distinct(v, 0.0001)",
    ],
)
def test_what_spark_cannot_put_together_is_evaluated_from_rows(spark: SparkSession, text: str) -> None:
    assert as_accumulators(call(text), "_a0", spark.range(1).selectExpr("id AS v"), sessions=False) is None


def _named(text: str, name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(text).alias(name)
