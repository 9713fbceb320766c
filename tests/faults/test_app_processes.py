"""A running app as a process: how it stops, how it is replaced, and who it waits for."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.derive.query import query
from penstock.engine.ledger import Ledger
from penstock.log import Log, TopicSettings
from tests.faults.app_processes import PROGRAM, SCHEMA, RunningApp, run_once, some_rows, until

STUCK = """
from pathlib import Path

from penstock import App

def stuck(rows):
    from pyspark.sql.functions import udf

    @udf("long")
    def wait(id):
        Path("{here}/reached").touch()
        while not Path("{here}/go").exists():
            pass
        return id

    return rows.withColumn("id", wait("id"))

app = App("shop")
events = app.topic("events", schema="{schema}", key="id", time="at", partitions=2)
app.view("ids", events.map(stuck, schema="{schema}").select(id="id"))
"""


@pytest.fixture
def started() -> Iterator[list[RunningApp]]:
    """What still runs at the end of the test is killed."""
    apps: list[RunningApp] = []
    yield apps
    for app in apps:
        app.kill()


@pytest.fixture
def program(tmp_path: Path, root: Path) -> Path:
    """The app, and its topic with some rows."""
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM)
    with Log(root) as log:
        topic = log.create_topic("events", SCHEMA, settings=TopicSettings(partitions=2, key=("id",), time="at"))
        topic.append(some_rows(0, 100))
    return path


def append(root: Path, start: int, count: int) -> None:
    with Log(root) as log:
        log.topic("events").append(some_rows(start, count))


def total(root: Path) -> int:
    with query(root / "apps" / "shop" / "views.sqlite", "select sum(events) from totals") as answer:
        return next(iter(answer))[0]  # type: ignore[return-value]


def test_a_second_instance_takes_over_waits_for_the_store_and_stops_when_it_is_asked_to(
    program: Path, root: Path, started: list[RunningApp]
) -> None:
    first = RunningApp(program, root)
    started.append(first)
    first.wait_for_epochs(1)
    second = RunningApp(program, root)
    started.append(second)
    until(lambda: Ledger(root / "apps" / "shop").token() == 2, second)
    # The first hears of it when it has something to do again.
    append(root, 100, 51)
    second.wait_for_epochs(1)
    assert first.ended() == 1
    assert "error: app 'shop': instance 1 was replaced by instance 2" in first.stderr
    assert "hint: " in first.stderr
    assert "Traceback" not in first.stderr
    # A locked store is waited for.
    with closing(sqlite3.connect(root / "apps" / "shop" / "views.sqlite", timeout=60)) as other:
        other.execute("BEGIN IMMEDIATE")
        append(root, 151, 10)
        before = len(second.epochs)
        until(lambda: "waiting: " in second.stderr, second)
        other.rollback()
    second.wait_for_epochs(before + 1)
    # Asked to stop, it finishes what it is at.
    append(root, 161, 39)
    second.signal(signal.SIGTERM)
    assert second.ended() == 0, second.stderr
    assert Ledger(root / "apps" / "shop").pending_plan() is None
    run_once(program, root)
    assert total(root) == 200


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_lets_the_epoch_finish_and_a_second_one_does_not(
    program: Path, root: Path, tmp_path: Path, started: list[RunningApp], number: signal.Signals
) -> None:
    program.write_text(STUCK.format(here=tmp_path, schema=SCHEMA))
    hasty = RunningApp(program, root)
    started.append(hasty)
    until((tmp_path / "reached").exists, hasty)
    hasty.signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        hasty.process.wait(1)
    hasty.signal(number)
    assert hasty.ended() == 128 + number
    (tmp_path / "reached").unlink()
    patient = RunningApp(program, root)
    started.append(patient)
    until((tmp_path / "reached").exists, patient)
    patient.signal(number)
    (tmp_path / "go").touch()
    assert patient.ended() == 0, patient.stderr
    assert [epoch["rows"] for epoch in patient.epochs] == [100]
    assert Ledger(root / "apps" / "shop").pending_plan() is None
