"""The end of a finite input: all windows end, once, and what comes later is judged like any late row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.derive.views import query
from penstock.engine.ledger.instances import InstanceMark
from penstock.engine.loop import Listener, Program, run
from penstock.engine.run_options import RunOptions
from penstock.errors import DeclarationError
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.testing import Rig
from tests.engine.app_world import NOON, at, event, events_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400


def finite_app() -> ps.App:
    """Windows of different lengths, sessions, unmatched rows, and windows over answers: all of them only when final."""
    app = ps.App("finite", settings=AppSettings(state_partitions=2))
    events, others = events_of(app), events_of(app, "others").select(other="id", k="kind", since="at")
    minutes = events.window(ps.tumbling("1 minute"), late="drop").group_by("kind").agg(n="count(*)")
    app.view("minutes", minutes)
    app.view("days", events.window(ps.tumbling("1 day"), keep="1 hour").group_by("kind").agg(n="count(*)"))
    app.view("hours", minutes.window(ps.tumbling("1 hour")).group_by("kind").agg(most="max(n)"))
    app.view("visits", events.window(ps.session("10 minutes"), late="drop").group_by("kind").agg(n="count(*)"))
    app.view("alone", events.join(others, on={"kind": "k"}, within="5 minutes", how="left").select("id", "other"))
    return app


def counts(rig: Rig, view: str) -> list[int]:
    return [row["n"] for row in rig.view(view)]


def test_a_finite_input_is_answered_in_full_and_the_next_day_is_as_on_time_as_ever(spark: SparkSession) -> None:
    with Rig(finite_app(), spark=spark) as rig:
        rig.append("events", [event(1, 10), event(2, 30), event(3, 70)])
        rig.run()
        assert counts(rig, "days") == counts(rig, "visits") == rig.view("alone") == []
        assert rig.finish() == 1
        assert (counts(rig, "minutes"), counts(rig, "days"), counts(rig, "visits")) == ([2, 1], [3], [3])
        assert [row["most"] for row in rig.view("hours")] == [2]
        assert rig.view("alone") == [{"id": number, "other": None} for number in (1, 2, 3)]
        assert rig.finish() == 0  # nothing is open any more

        rig.append("events", [event(4, 80)])  # of the day that was finished: it has come too late for its minute
        rig.run()
        assert (counts(rig, "minutes"), counts(rig, "days")) == ([2, 1], [4])
        assert {row["id"] for row in rig.rows("events.late")} == {4}

        tomorrow = at(DAY)
        rig.now = tomorrow
        rig.append("events", [event(5, DAY), event(6, DAY + 1), event(7, DAY + 60)])
        rig.finish()
        assert (counts(rig, "minutes"), counts(rig, "days")) == ([2, 1, 2, 1], [4, 3])
        assert {row["id"] for row in rig.rows("events.late")} == {4}


@pytest.mark.parametrize("step", ["plan", "run", "publish"])
def test_an_end_that_was_planned_is_carried_out_after_a_crash_by_whoever_comes_next(
    spark: SparkSession, step: Any
) -> None:
    app = ps.App("finite", settings=AppSettings(state_partitions=2))
    app.view("days", events_of(app).window(ps.tumbling("1 day")).group_by("kind").agg(n="count(*)"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [event(1, 10)])
        rig.run()
        with rig.crash_at(step):
            rig.finish()
        assert rig.view("days") == []
        assert rig.run() == 1
        assert counts(rig, "days") == [1]
        assert rig.watermark("events") == (NOON + timedelta(days=1)).replace(hour=0)
        rig.restart(changed(app))  # it is built again from the log, up to the end that was declared
        rig.run()
        assert counts(rig, "days") == [1]


def changed(app: ps.App) -> ps.App:
    again = ps.App(app.name, settings=app.settings)
    days = events_of(again).window(ps.tumbling("1 day")).group_by("kind").agg(n="count(*)", most="max(amount)")
    again.view("days", days)
    return again


# -- running it -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run_app(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs an app as `penstock run` does, with the session of the tests."""
    monkeypatch.setattr("penstock.engine.loop.start_spark", lambda *_, **__: spark)
    app = ps.App("finite", settings=AppSettings(state_partitions=2))
    app.view("days", events_of(app).window(ps.tumbling("1 day")).group_by("kind").agg(n="count(*)"))

    def run_with(**options: Any) -> None:
        program = Program(app.plan, tmp_path, app.settings)
        listener = Listener(lambda progress: None, lambda error: None)
        run(program, RunOptions(**options), stop=threading.Event(), listener=listener)

    return run_with


def test_a_run_that_finishes_shows_the_last_windows(run_app: Callable[..., None], tmp_path: Path) -> None:
    run_app(once=True)
    with Log(tmp_path) as log:
        log.topic("events").append([event(1, 10)])
    run_app(once=True, finish=True)
    days = query(tmp_path / "apps" / "finite", "select n from days").rows()
    assert days == [{"n": 1}]


def test_the_input_of_an_app_that_runs_cannot_be_finished(run_app: Callable[..., None], tmp_path: Path) -> None:
    run_app(once=True)
    mark = InstanceMark(tmp_path / "apps" / "finite", "finite", 7, since=0)
    with pytest.raises(DeclarationError, match=r"it is running in process \d+ and expects more rows"):
        run_app(once=True, finish=True)
    mark.close()


def test_only_a_run_that_ends_can_finish_its_input() -> None:
    with pytest.raises(DeclarationError, match="only a run that ends"):
        RunOptions(finish=True)
