"""Sinks in targets outside of the log: the table of a SQLite file is the view, whatever crashes, changes or is lost."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.ledger.registration import Registration
from penstock.engine.ledger.savepoints import Savepoints
from penstock.engine.resume.forecast import forecast_on
from penstock.errors import DeclarationError, FencedError
from penstock.flow.settings import AppSettings
from penstock.testing import Crash, Rig
from penstock.testing.rig import Step
from tests.engine.app_world import another_instance, events_of, some_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOTAL = "sum(amount)"


def program(path: Path, amount: str = TOTAL, *, sink: bool = True) -> ps.App:
    app = ps.App("shop", settings=AppSettings(state_partitions=2))
    totals = events_of(app).group_by("kind").agg(events="count(*)", amount=amount)
    app.view("totals", totals)
    if sink:
        app.sink("report", totals, to=f"sqlite:///{path}")
        app.sink("rows", events_of(app).select("id", "kind"), to=f"sqlite:///{path}")
    return app


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reports.db"


@pytest.fixture
def rig(spark: SparkSession, path: Path) -> Iterator[Rig]:
    with Rig(program(path), spark=spark) as rig:
        yield rig


def table(path: Path, name: str = "report") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute(f"select * from {name}").fetchall(), key=repr)


def assert_in_step(rig: Rig, path: Path) -> None:
    assert table(path) == sorted((tuple(row.values()) for row in rig.view("totals")), key=repr)
    events = [(row["id"], row["kind"]) for row in rig.rows("events")]
    assert table(path, "rows") == sorted(events, key=repr)


def test_tables_are_in_step_with_the_views_wherever_the_app_crashes(rig: Rig, path: Path) -> None:
    steps: list[Step] = ["plan", "run", "publish", "commit"]
    for number, step in enumerate(steps):
        rig.append("events", some_events(10 * number, 10))
        rig.crash_at(step)
        with pytest.raises(Crash):
            rig.run()
        rig.restart()
        rig.run()
        assert_in_step(rig, path)


def test_a_sink_that_changed_is_built_beside_the_old_table_and_shown_when_it_is_complete(rig: Rig, path: Path) -> None:
    rig.append("events", some_events(0, 10))
    rig.run()
    before = table(path)
    rig.restart(program(path, "max(amount)"))
    assert table(path) == before
    rig.run()
    assert table(path) != before
    assert_in_step(rig, path)


@pytest.mark.parametrize("lost", ["removed", "older"])
def test_a_file_that_is_not_where_the_app_is_is_built_again(rig: Rig, path: Path, lost: str) -> None:
    rig.append("events", some_events(0, 10))
    rig.run()
    shutil.copy(path, path.with_suffix(".copy"))
    rig.append("events", some_events(10, 10))
    rig.run()
    rig._stop()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if lost == "older":
        shutil.copy(path.with_suffix(".copy"), path)
    assert set(forecast_on(rig.log, rig.app.plan).resume.backfill) == {"report", "rows"}
    rig.restart()
    rig.run()
    assert_in_step(rig, path)


def test_after_a_restore_the_tables_go_back_with_the_views(rig: Rig, path: Path) -> None:
    rig.append("events", some_events(0, 10))
    rig.run()
    ledger = Ledger(rig.directory)
    savepoints = Savepoints(ledger, Registration(rig.log, "shop"))
    savepoints.create("before", created=1)
    rig.append("events", some_events(10, 10))
    rig.run()
    savepoints.restore("before", lambda: rig.log.writer(instance_name("shop")).token, restored_at=2)
    rig.restart()
    rig.run()
    assert_in_step(rig, path)


def test_a_sink_that_is_no_longer_declared_and_one_that_is_new(rig: Rig, path: Path) -> None:
    rig.append("events", some_events(0, 10))
    rig.run()
    rig.restart(program(path, sink=False))
    rig.append("events", some_events(10, 10))
    rig.run()
    rig.restart(program(path))
    rig.append("events", some_events(20, 10))
    rig.run()
    assert_in_step(rig, path)


def test_an_app_that_is_begun_anew_begins_its_tables_anew(rig: Rig, path: Path) -> None:
    rig.append("events", some_events(0, 10))
    rig.run()
    rig._stop()
    shutil.rmtree(rig.directory)
    rig.restart()
    rig.run()
    assert_in_step(rig, path)


def test_an_instance_that_was_replaced_is_refused(rig: Rig, spark: SparkSession, path: Path) -> None:
    rig.append("events", some_events(0, 10))
    rig.run()
    with another_instance(rig, spark) as other:
        rig.append("events", some_events(10, 10))
        with pytest.raises(FencedError):
            rig.step()
        assert other.step() is not None
    assert_in_step(rig, path)


@pytest.mark.parametrize("url", ["reports.db", "oracle://x", "sqlite://", "sqlite:///", 7])
def test_what_is_no_target_is_refused_when_it_is_declared(url: Any) -> None:
    app = ps.App("shop")
    with pytest.raises(DeclarationError, match="sink 'report'"):
        app.sink("report", events_of(app), to=url)


def test_in_sql_the_target_is_an_option(path: Path) -> None:
    app = ps.App("shop")
    events_of(app)
    app.sql(
        f"CREATE SINK report WITH (to = 'sqlite:///{path}') AS SELECT kind, count(*) AS n FROM events GROUP BY kind"
    )
    (sink,) = app.plan.external_sinks
    assert (sink.name, sink.url) == ("report", f"sqlite:///{path}")
