"""`spark.read.format("penstock")` with a view: Spark reads what a query reads, all of one commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from penstock.derive.views import query
from penstock.engine.datasource import view as view_source
from penstock.engine.datasource.view import _groups
from penstock.engine.state.run import RunFile
from penstock.paths import app_directory
from tests.derive.views.test_query import EVERY_TYPE, EVERY_VALUE
from tests.derive.views.written_app import WrittenApp, WrittenView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[..., "DataFrame"]


@pytest.fixture
def app(tmp_path: Path) -> WrittenApp:
    written = WrittenApp(app_directory(tmp_path, "shop"))
    written.declare(WrittenView("totals", "country string, n bigint", ("country",), "keyed"))
    written.declare(WrittenView("bag", "x int", None, "counted"))
    written.declare(WrittenView("seen", "id bigint"))
    written.upsert("totals", [{"country": str(number), "n": number} for number in range(50)])
    written.count("bag", [{"x": 1}, {"x": 2}], [3, 1])
    written.append("seen", [{"id": 1}, {"id": 1}])
    written.commit()
    written.upsert("totals", [{"country": "7", "n": 70}], [{"country": "8"}])
    written.count("bag", [{"x": 1}, {"x": 2}], [-1, 1])
    written.commit()
    return written


@pytest.fixture
def load(spark: SparkSession, tmp_path: Path) -> Load:
    def read(name: str, **options: str) -> DataFrame:
        reader = spark.read.format("penstock").option("path", str(tmp_path)).option("view", name)
        return reader.options(**options).load()

    return read


def test_spark_reads_the_rows_that_a_query_reads(app: WrittenApp, load: Load) -> None:
    for name in app.views:
        found = Counter(tuple(row) for row in load(name).collect())
        assert found == Counter(query(app.directory, f"select * from {name}"))
    assert load("TOTALS", app="shop", columns="n").where("n > 45").count() == 5


def test_every_type_comes_through(app: WrittenApp, load: Load) -> None:
    app.declare(WrittenView("typed", EVERY_TYPE, ("id",), "keyed"))
    scores = EVERY_VALUE["scores"]
    assert isinstance(scores, dict)
    app.upsert("typed", [{**EVERY_VALUE, "scores": list(scores.items())}, {"id": 2}])
    app.commit()
    rows = load("typed").orderBy("id").selectExpr("id", "huge", "name", "raw", "day", "tags", "scores").collect()
    expected = [tuple(EVERY_VALUE[name] for name in ("id", "huge", "name", "raw", "day", "tags", "scores"))]
    assert [tuple(row) for row in rows] == [*expected, (2, None, None, None, None, None, None)]


def test_all_tasks_read_the_commit_that_the_driver_saw(app: WrittenApp, load: Load) -> None:
    frame = load("totals")
    assert frame.count() == 49
    app.upsert("totals", [{"country": "new", "n": 1}])
    app.commit()
    assert load("totals").count() == 50


def test_a_view_without_rows_is_empty(app: WrittenApp, load: Load) -> None:
    app.declare(WrittenView("empty", "id bigint"))
    app.commit()
    assert load("empty").collect() == []


def test_mistakes_are_told_before_anything_runs(app: WrittenApp, load: Load) -> None:
    with pytest.raises(PySparkException, match="there is no view 'totls'"):
        load("totls")
    with pytest.raises(PySparkException, match="there is no column 'm'"):
        load("totals", columns="m")
    with pytest.raises(PySparkException, match="there is no option 'until' here"):
        load("totals", until="5")
    with pytest.raises(PySparkException, match="it has not run on the log"):
        load("totals", app="bank")


def test_small_runs_are_read_together_and_large_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_source, "SPLIT_BYTES", 100)
    files = tuple(RunFile(str(number), 1, size, 0) for number, size in enumerate((500, 40, 40, 40, 10)))
    assert [[file.bytes for file in group] for group in _groups(files)] == [[500], [40, 40], [40, 10]]
