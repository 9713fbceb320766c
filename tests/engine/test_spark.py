"""Starting Spark, without a Spark: what its session would be asked for."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.engine.spark import start_spark


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of the session that is started next; whatever a start changes in this process is restored."""
    asked_for: dict[str, Any] = {}

    def get_or_create(builder: SparkSession.Builder) -> Any:
        asked_for.update(builder._options)
        return SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=SimpleNamespace()))

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get_or_create)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace())  # as if its process ran already
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    for name in ("SQLQueryContextLogger", "py4j"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.WARNING)
    return asked_for


def test_the_application_has_the_name_of_the_app(options: dict[str, Any]) -> None:
    start_spark("shop")
    assert options["spark.app.name"] == "penstock shop"


@pytest.mark.parametrize(("master", "expected"), [(None, "local[*]"), ("local[3]", "local[3]"), ("yarn", "yarn")])
def test_it_runs_on_this_machine_unless_a_cluster_is_named(
    options: dict[str, Any], master: str | None, expected: str
) -> None:
    start_spark("shop", master)
    assert options["spark.master"] == expected
