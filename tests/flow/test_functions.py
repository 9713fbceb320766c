"""The stored list of Spark's functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from penstock.flow.functions import closest_function, kind_of

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
