"""Estimates from registers equal Spark's own."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.engine.build.hyperloglog import bits_of, estimate, rank_of, register_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("deviation", "bits"), [("0.05", 9), ("0.01", 14), ("0.39", 4), ("0.5", None), ("0.001", None), ("0.05D", None)]
)
def test_the_deviation_says_how_many_registers_there_are(deviation: str, bits: int | None) -> None:
    assert bits_of(deviation) == bits


def test_estimates_equal_those_of_spark_for_any_registers(spark: SparkSession) -> None:
    """Registers of every fullness, also such as no values of a real hash would leave behind."""
    dice = Random(1)
    assert spark._jvm is not None
    helpers = spark._jvm.org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper
    words = spark._jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow
    for deviation in ("0.39", "0.2", "0.15", "0.05"):
        bits, helper = bits_of(deviation), helpers(float(deviation))
        assert bits is not None
        wanted, sums = [], []
        for _ in range(40):
            registers = _registers(dice, bits)
            row = words(helper.numWords())
            for word in range(helper.numWords()):
                word_registers = registers[10 * word : 10 * word + 10]
                row.setLong(word, sum(rank << (6 * place) for place, rank in enumerate(word_registers)))
            wanted.append(helper.query(row, 0))
            sums.append((float(sum(2.0**-rank for rank in registers if rank)), sum(rank > 0 for rank in registers)))
        rows = spark.createDataFrame(sums, "said double, used bigint")
        assert [row[0] for row in rows.selectExpr(estimate(bits, "said", "used")).collect()] == wanted


def _registers(dice: Random, bits: int) -> list[int]:
    count, most = 1 << bits, dice.choice([1, 2, 5, 40])
    used = dice.choice([count, count, dice.randint(0, count)])
    ranks = [dice.randint(1, dice.randint(1, most)) for _ in range(used)] + [0] * (count - used)
    dice.shuffle(ranks)
    return ranks


def test_a_group_without_values_has_none(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(None, None)], "said double, used bigint")
    assert rows.selectExpr(estimate(9, "said", "used")).collect()[0][0] == 0


def test_null_has_no_register_and_ranks_begin_with_one(spark: SparkSession) -> None:
    rows = spark.range(2000).selectExpr("CASE WHEN id > 0 THEN id END AS v")
    found = rows.selectExpr("v", f"{register_of('v', 4)} AS register", f"{rank_of('v', 4)} AS rank").collect()
    assert [row.register for row in found if row.v is None] == [None]
    assert {row.register for row in found if row.v is not None} == set(range(16))
    ranks = [row.rank for row in found if row.v is not None]
    assert min(ranks) == 1
    assert 0.4 < ranks.count(1) / len(ranks) < 0.6
