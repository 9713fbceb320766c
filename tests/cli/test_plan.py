"""`penstock plan`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import Result

from penstock import AppSettings, Log, TopicSettings
from penstock.app import load_app
from penstock.engine.epoch import Instance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
from penstock import App, AppSettings

app = App("shop", settings=AppSettings(state_partitions=2, max_rows=10))
orders = app.topic("orders", schema="id long, country string", key="id")
"""
COUNTS = 'app.view("counts", orders.group_by("country").agg(n="count(*)"))\n'
CHANGED = 'app.view("counts", orders.group_by("country").agg(n="count(id)"))\n'
IDS = 'app.view("ids", orders.select(id="id"))\n'


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the program, with these views."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(*views: str) -> Path:
        path = tmp_path / "shop.py"
        path.write_text(SHOP + "".join(views))
        return path

    return write


@pytest.fixture
def start(folder: Path, spark: SparkSession) -> Callable[..., None]:
    """Runs the program in this process, for so many epochs at most."""

    def begin(path: Path, epochs: int = 100) -> None:
        app = load_app(path)
        with Log(folder) as log, Instance(app.plan, log, app.settings or AppSettings(), spark) as instance:
            for _ in range(epochs):
                if instance.step() is None:
                    break

    return begin


def append(folder: Path, count: int, start: int = 0) -> None:
    with Log(folder) as log:
        rows = [{"id": number, "country": "DE"} for number in range(start, start + count)]
        log.topic("orders").append(rows)


def test_before_the_first_start_everything_is_to_be_built(
    run: Callable[..., Result], declare: Callable[..., Path], folder: Path
) -> None:
    shown = run("plan", str(declare(COUNTS, IDS)))
    assert shown.stdout == "app 'shop' has not run on this log: all 2 views are built from the log\n"
    assert shown.exit_code == 0
    assert not folder.exists()


def test_a_file_of_sql_is_planned_as_one_in_python(run: Callable[..., Result], folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "shop.sql"
    path.write_text(
        "CREATE TOPIC orders (id BIGINT, country STRING) WITH (key = 'id');\n"
        "CREATE VIEW counts AS SELECT country, count(*) AS n FROM orders GROUP BY country;\n"
    )
    shown = run("plan", str(path))
    assert shown.stdout == "app 'shop' has not run on this log: its view is built from the log\n"
    assert shown.exit_code == 0
    assert json.loads(run("plan", str(path), "--json").stdout)["new"] == ["counts"]
    assert not folder.exists()


def test_what_becomes_of_each_view_is_reported_and_nothing_is_done(
    run: Callable[..., Result], declare: Callable[..., Path], start: Callable[..., None], folder: Path
) -> None:
    start(declare(COUNTS, IDS), 0)
    append(folder, 25)
    start(declare(COUNTS, IDS))
    assert run("plan", str(declare(COUNTS, IDS))).stdout == "kept as they are: counts, ids\n"
    document = json.loads(run("plan", str(declare(CHANGED)), "--json").stdout)
    assert document == {
        "app": "shop",
        "first_start": False,
        "kept": [],
        "rebuilt": ["counts"],
        "new": [],
        "dropped": ["ids"],
        "muted": [],
        "continues_backfill": False,
        "rows_to_read": 25,
        "missing": [],
        "gaps": [],
        "refused": None,
        "warnings": [],
    }
    lines = run("plan", str(declare(CHANGED, IDS, IDS.replace('"ids"', '"more"')))).stdout.splitlines()
    assert lines == [
        "kept as they are: ids",
        "changed, rebuilt next to the old ones: counts",
        "new, built from the log: more",
        "to be read again: 25 rows; the views that are kept do not advance until it is done",
    ]
    start(declare(CHANGED, IDS), 1)
    lines = run("plan", str(declare(CHANGED, IDS))).stdout.splitlines()
    assert (
        lines[-1]
        == "still to be read, of what was begun: 15 rows; the views that are kept do not advance until it is done"
    )
    assert run("plan", str(declare(COUNTS, IDS))).stdout == "kept as they are: counts, ids\n"


def test_a_program_that_would_be_refused_is_reported(
    run: Callable[..., Result], declare: Callable[..., Path], start: Callable[..., None], folder: Path
) -> None:
    settings = TopicSettings(key=("id",), segment_bytes=500, retention_bytes=500)
    with Log(folder) as log:
        log.create_topic("orders", "id long, country string", settings=settings)
    start(declare(COUNTS), 1)
    for first in range(0, 50, 10):
        append(folder, 10, first)
        start(declare(COUNTS))
    shown = run("plan", str(declare(CHANGED)))
    assert shown.exit_code == 1
    first, second = shown.stdout.splitlines()
    assert first == "changed, rebuilt next to the old ones: counts"
    removed = "topic 'orders', partition 0: offsets 0 to 39 (40 offsets)"
    assert second == f"no longer in the log, and needed for counts: {removed}"
    assert f"views or sinks are to be built from rows that were removed by retention: {removed}" in shown.stderr
    assert "--from-oldest" in shown.stderr
    document = json.loads(run("plan", str(declare(CHANGED)), "--json").stdout)
    assert "removed by retention" in document["refused"]
    (missing,) = document["missing"]
    assert (missing["start"], missing["end"], missing["missing_in"]) == (0, 40, ["counts"])
    assert run("plan", str(declare(CHANGED)), "--from-oldest").exit_code == 0
    assert run("plan", str(declare(COUNTS))).exit_code == 0


def test_a_topic_that_differs_from_its_declaration_is_reported(
    run: Callable[..., Result], declare: Callable[..., Path], log: Log
) -> None:
    log.create_topic("orders", "id string, country string", key="id")
    shown = run("plan", str(declare(COUNTS)))
    assert shown.exit_code == 1
    assert "topic 'orders': its column 'id' in the log is id string; this app declares id bigint" in shown.stderr


def test_groups_that_are_kept_forever_are_warned_of(
    run: Callable[..., Result], declare: Callable[..., Path], folder: Path
) -> None:
    clicks = 'clicks = app.topic("clicks", schema="id long, at timestamp", time="at")\n'
    minutes = """app.view("minutes", clicks.group_by(minute="date_trunc('minute', at)").agg(n="count(*)"))\n"""
    program = str(declare(clicks, minutes))
    said = run("plan", program)
    assert said.exit_code == 0
    assert "shop.py:7: it is grouped by date_trunc('minute', at) without a window" in said.stderr
    assert 'ps.tumbling("1 minute")' in said.stderr
    (warning,) = json.loads(run("plan", program, "--json").stdout)["warnings"]
    assert "kept forever" in warning["message"]
    assert "warning: " in run("explain", program).stdout


def test_that_a_key_cannot_be_changed_is_said_where_one_differs(
    run: Callable[..., Result], declare: Callable[..., Path], log: Log
) -> None:
    log.create_topic("orders", "id bigint, country string", key="country")
    shown = run("plan", str(declare(COUNTS)))
    assert "topic 'orders': its key in the log is country; this app declares id" in shown.stderr
    assert "create another topic with this key: the key of a topic cannot be changed" in shown.stderr
    assert "evolve" not in shown.stderr
