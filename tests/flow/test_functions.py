"""The stored list of Spark's functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from penstock.flow.functions import closest_function, kind_of, wrong_number
from penstock.flow.reading import check_function, read
from penstock.flow.spark_arguments import ARGUMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOOL = Path(__file__).resolve().parents[2] / "tools" / "spark_functions.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_functions_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stored_list_is_that_of_the_installed_spark(spark: SparkSession) -> None:
    writer = tool()
    assert writer.TARGET.read_text() == writer.module(writer.kinds(spark)), "run tools/spark_functions.py"


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("sum", "aggregate"),
        ("vector_sum", "aggregate"),
        ("upper", "scalar"),
        ("try_cast", "scalar"),
        ("explode", "generator"),
        ("row_number", "window"),
        ("rand", "unrepeatable"),
        ("current_date", "unrepeatable"),
        ("session_window", "time window"),
        ("grouping", "grouping"),
        ("summ", None),
    ],
)
def test_every_function_is_of_one_kind(function: str, kind: str | None) -> None:
    assert kind_of(function) == kind


def test_a_hint_offers_only_functions_that_are_allowed() -> None:
    assert closest_function("uper") == "did you mean 'upper'?"
    assert closest_function("percentil") == "did you mean 'percentile'?"
    assert closest_function("explod") is None
    assert closest_function("xyzzy_42") is None


@pytest.mark.parametrize(
    ("function", "given", "wrong"),
    [
        ("upper", 1, None),
        ("upper", 2, "it takes 1 argument"),
        ("percentile", 1, "it takes 2 or 3 arguments"),
        ("percentile", 3, None),
        ("pi", 1, "it takes no arguments"),
        ("make_timestamp", 4, "it takes 1, 2, 3, 6 or 7 arguments"),
        ("coalesce", 7, None),
        ("no_such_function", 3, None),
    ],
)
def test_the_number_of_arguments_is_checked(function: str, given: int, wrong: str | None) -> None:
    assert wrong_number(function, given) == wrong


@pytest.mark.long
def test_the_stored_numbers_of_arguments_are_those_of_the_installed_spark(spark: SparkSession) -> None:
    writer = tool()
    called = [name for name, kind in writer.kinds(spark).items() if kind in ("AGGREGATE", "SCALAR")]
    assert writer.ARGUMENTS_TARGET.read_text() == writer.arguments_module(writer.arguments(spark, called))


def test_a_sample_of_the_numbers_of_arguments_is_that_of_the_installed_spark(spark: SparkSession) -> None:
    writer, sample = tool(), ("upper", "percentile", "count", "concat_ws", "split", "make_interval")
    counts = {name: count for count, names in ARGUMENTS.items() for name in names.split() if name in sample}
    assert writer.arguments(spark, sample) == counts


@pytest.mark.parametrize(
    "text",
    [
        "ceil(a)", "ceil(a, 1)", "mode(a)", "mode() within group (order by a)", "cast(a as decimal(10, 2))",
        "a::char(3)", "dateadd(day, 1, a)", "datediff(hour, a, b)", "date_add(a, 1)", "extract(year from a)",
        "trim(both 'x' from a)", "substring(a from 2 for 3)", "position('x' in a)", "overlay(a placing 'x' from 1)",
        "percentile_cont(0.5) within group (order by a)", "timestampadd(day, 1, a)", "count(a, b)", "first(a, true)",
        "first(a) ignore nulls", "case when (a) then 1 end", "if(a, b, c)", "a between (b) and (c)",
        "transform(a, x -> x + 1)", "date '2024-01-01'", "interval '1' day", "named_struct('x', a)", "a in (b, c)",
        "listagg(a, ',')", "char(65)", "date(a)", "timestamp(a)", "left(a, 1)",
    ],
)  # fmt: skip
def test_what_spark_accepts_is_not_refused_for_its_arguments(spark: SparkSession, text: str) -> None:
    reading = read(text)
    for call in reading.calls:
        check_function(text, call)
    try:
        spark.sql("select cast(null as string) a, cast(null as string) b, cast(null as string) c").selectExpr(text)
    except Exception as error:  # noqa: BLE001 - the types are not what this is about
        assert "WRONG_NUM_ARGS" not in str(error)  # noqa: PT017
        assert "PARSE_SYNTAX" not in str(error)  # noqa: PT017
