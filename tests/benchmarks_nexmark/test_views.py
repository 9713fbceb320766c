"""The views of Nexmark's queries, kept up to date over several epochs, are the answers of DuckDB over all events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from benchmarks.engine_running import running, view_rows
from benchmarks.nexmark import generator
from benchmarks.nexmark.generator import batches, create_side_input, create_topics
from benchmarks.nexmark.oracle import QUERIES, answer, load
from penstock.app import load_app
from penstock.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEXMARK = Path(generator.__file__).parent
EVENTS, RATE = 20_000, 400  # 50 seconds of event time
EPOCH_ROWS = 7_000


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        load(opened, batches(EVENTS, rate=RATE))
        yield opened


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of an app with all queries, after the last event."""
    path = tmp_path_factory.mktemp("nexmark") / "nexmark.sql"
    queries = [(NEXMARK / "queries" / f"{query}.sql").read_text() for query in QUERIES]
    path.write_text("\n".join([f"SET max_rows = {EPOCH_ROWS};", (NEXMARK / "topics.sql").read_text(), *queries]))
    with Log(path.parent / "log") as log:
        create_topics(log, EVENTS, rate=RATE)
        create_side_input(log)
        with running(load_app(path), log, spark) as runner:
            assert len(runner.run()) > EVENTS // EPOCH_ROWS
            return runner.views


@pytest.mark.parametrize("query", QUERIES)
def test_a_view_ends_with_the_rows_of_the_answer(
    query: str, views: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    wanted = Counter(map(plain, answer(connection, query).to_pylist()))
    found = Counter(map(plain, view_rows(views, f"SELECT * FROM {query}").to_pylist()))
    assert wanted
    assert found == wanted


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(_plain(value) for _, value in sorted(row.items()))


def _plain(value: Any) -> Any:
    """Moments without a zone, and numbers as they are kept."""
    match value:
        case datetime():
            return value.replace(tzinfo=None)
        case Decimal():
            return float(value)
        case _:
            return value
