"""In which tests Spark compiles, and in which it interprets: what `interpreted` in conftest.py promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.spark import session_for
from tests.conftest import INTERPRETED

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_apps_are_interpreted_only_where_it_is_asked_for(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    compiled = {name: session_for(spark, 1).conf.get(name) for name in INTERPRETED}
    assert compiled == {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    request.getfixturevalue("interpreted")
    assert {name: session_for(spark, 1).conf.get(name) for name in INTERPRETED} == INTERPRETED
