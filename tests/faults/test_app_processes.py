"""A running app as a process: how it stops, how it is replaced, and who it waits for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.ledger.ledger import Ledger
from penstock.log import Log, TopicSettings
from tests.faults.app_oracle import assert_right, shown
from tests.faults.app_processes import PROGRAM, SCHEMA, RunningApp, command, java_of, run_once, some_rows, until

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


def app_of(root: Path) -> Path:
    return root / "apps" / "shop"


def total(root: Path) -> int:
    ((events,),) = shown(root, "select sum(events) from totals")
    return int(events)


def assert_replaced(app: RunningApp, by: int) -> None:
    assert app.ended() == 1
    assert f"error: app 'shop': instance {by - 1} was replaced by instance {by}\nhint: " in app.stderr
    assert "Traceback" not in app.stderr


def test_the_second_of_two_instances_takes_over_and_is_replaced_by_a_restore(
    program: Path, root: Path, started: list[RunningApp]
) -> None:
    first = RunningApp(program, root)
    started.append(first)
    first.wait_for_epochs(1)
    second = RunningApp(program, root)
    started.append(second)
    until(lambda: Ledger(app_of(root)).token() == 2, second)
    # The first hears of it when it has something to do again.
    append(root, 100, 51)
    second.wait_for_epochs(1)
    assert_replaced(first, by=2)
    append(root, 151, 10)
    until(lambda: total(root) == 161, second)
    # A savepoint is made while it runs, and after more events gone back to.
    assert "created savepoint 'before'" in command("savepoint", "create", "before", "--log", root)
    append(root, 161, 39)
    until(lambda: total(root) == 200, second)
    command("savepoint", "restore", "before", "--log", root, "--yes")
    assert total(root) == 161
    append(root, 200, 1)
    assert_replaced(second, by=3)
    run_once(program, root)
    assert total(root) == 201
    assert_right(root)


@pytest.mark.long
@pytest.mark.parametrize("runs", ["state/aggregate-*/*/*.arrow", "views/totals/*/*.arrow"])
def test_a_damaged_run_is_named_and_everything_built_again_on_request(program: Path, root: Path, runs: str) -> None:
    run_once(program, root)
    for path in app_of(root).glob(runs):
        path.write_bytes(path.read_bytes()[:-1])
    append(root, 100, 60)
    refused = RunningApp(program, root, "--once")
    assert refused.ended() == 1
    assert re.search(f"error: {app_of(root)}/{runs.partition('/')[0]}/.*: it has ", refused.stderr)
    assert "penstock run --rebuild" in refused.stderr
    assert "Traceback" not in refused.stderr
    run_once(program, root, "--rebuild")
    assert_right(root)


def test_an_app_that_is_ended_together_with_its_spark_goes_on_at_the_next_start(
    program: Path, root: Path, tmp_path: Path, started: list[RunningApp]
) -> None:
    program.write_text(STUCK.format(here=tmp_path, schema=SCHEMA))
    app = RunningApp(program, root)
    started.append(app)
    until((tmp_path / "reached").exists, app)
    for process in (java_of(app), app.process.pid):  # as a supervisor does that signals every process
        os.kill(process, signal.SIGTERM)
    assert app.ended() == -signal.SIGTERM, app.stderr
    assert "stopped in the middle of an epoch, after 0 epochs and 0 rows; the next start runs" in app.stderr
    assert "Traceback" not in app.stderr
    (tmp_path / "go").touch()
    assert [epoch["rows"] for epoch in run_once(program, root).epochs] == [100]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
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
    assert hasty.ended() == -number
    (tmp_path / "reached").unlink()
    patient = RunningApp(program, root)
    started.append(patient)
    until((tmp_path / "reached").exists, patient)
    patient.signal(number)
    (tmp_path / "go").touch()
    assert patient.ended() == -number, patient.stderr
    assert [epoch["rows"] for epoch in patient.epochs] == [100]
    assert Ledger(app_of(root)).pending_plan() is None
