"""An app whose Spark loses processes, as the kernel ends them when memory is short: no row pays for it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.engine.ledger.ledger import Ledger
from penstock.log import Log, TopicSettings
from tests.faults.app_oracle import shown
from tests.faults.app_processes import SCHEMA, RunningApp, children, java_of, some_rows, until
from tests.faults.test_app_on_a_cluster import spark_home

# A function that is made once, and used with every Spark that runs the app.
PROGRAM = f'''
from functools import cache

from penstock import App, AppSettings


@cache
def checked():
    from pyspark.sql.functions import udf

    @udf("long")
    def check(amount):
        if amount == 77:
            raise ValueError("77 is not an amount")
        return amount

    return check


def check(rows):
    return rows.withColumn("amount", checked()("amount"))


app = App("shop", settings=AppSettings(state_partitions=2, max_rows=2_000))
events = app.topic("events", schema="{SCHEMA}", key="id", time="at", partitions=2, lateness="1 second")
app.view("totals", events.map(check, schema="{SCHEMA}").group_by("kind").agg(events="count(*)", amount="sum(amount)"))
'''


@pytest.fixture
def started() -> Iterator[list[RunningApp]]:
    """What still runs at the end of the test is killed."""
    apps: list[RunningApp] = []
    yield apps
    for app in apps:
        app.kill()


@pytest.fixture
def program(tmp_path: Path, root: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM)
    with Log(root) as log:
        log.create_topic("events", SCHEMA, settings=TopicSettings(partitions=2, key=("id",), time="at"))
    return path


def append(root: Path, start: int, count: int) -> None:
    with Log(root) as log:
        log.topic("events").append(some_rows(start, count))


def total(root: Path) -> int:
    with suppress(Exception):  # there are no views yet
        ((events,),) = shown(root, "select sum(events) from totals")
        return int(events or 0)
    return 0


def dead(root: Path) -> list[int]:
    with Log(root) as log:
        if "shop.dead" not in log.topics():
            return []
        return sorted(json.loads(row["row"])["id"] for row in log.topic("shop.dead").read())


# -- processes --------------------------------------------------------------------------------------------------------


def workers_of(app: RunningApp) -> list[int]:
    """Spark's Python workers: children of the process that it starts for them."""
    return [worker for daemon in children(java_of(app)) for worker in children(daemon)]


def kill_workers(app: RunningApp, seconds: float) -> int:
    """Kill whichever workers there are, for some seconds; how many there were."""
    killed, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        for worker in workers_of(app):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                killed += 1
        time.sleep(0.05)
    return killed


def test_killed_workers_make_no_row_dead_and_a_killed_spark_is_started_again(
    program: Path, root: Path, started: list[RunningApp]
) -> None:
    append(root, 0, 50)
    app = RunningApp(program, root)
    started.append(app)
    app.wait_for_epochs(1)
    assert b"penstock shop" in Path(f"/proc/{java_of(app)}/cmdline").read_bytes()
    # One row of these is bad.
    append(root, 50, 100)
    assert kill_workers(app, 5.0)
    until(lambda: total(root) == 149, app)
    assert dead(root) == [77]
    assert "a Python process of Spark ended in the middle of its work" in app.stderr
    # Spark itself: the app goes on with another one, without being started again.
    os.kill(java_of(app), signal.SIGKILL)
    append(root, 200, 50)
    until(lambda: total(root) == 199, app)
    assert "Spark's Java process was killed by signal 9 (Killed); it is started again in 1 s" in app.stderr
    append(root, 250, 51)  # 277 is 77 of the third hundred
    until(lambda: total(root) == 249, app)
    assert dead(root) == [77, 277]
    assert "Traceback" not in app.stderr
    app.signal(signal.SIGTERM)
    assert app.ended() == -signal.SIGTERM, app.stderr
    assert "started again" not in app.stderr.partition("it is started again in 1 s")[2]
    assert Ledger(root / "apps" / "shop").pending_plan() is None


@pytest.mark.long
def test_a_killed_driver_of_a_cluster_is_started_again(
    program: Path, root: Path, tmp_path: Path, started: list[RunningApp]
) -> None:
    append(root, 0, 50)
    environment = {"SPARK_HOME": str(spark_home(tmp_path / "spark"))}
    app = RunningApp(program, root, "--spark", "local-cluster[2,1,1024]", environment=environment)
    started.append(app)
    app.wait_for_epochs(1)
    os.kill(java_of(app), signal.SIGKILL)
    append(root, 100, 50)
    until(lambda: total(root) == 100, app)
    assert "was killed by signal 9 (Killed); it is started again in 1 s" in app.stderr
    app.signal(signal.SIGTERM)
    assert app.ended() == -signal.SIGTERM, app.stderr
    assert "Traceback" not in app.stderr


@pytest.mark.long
def test_a_spark_that_is_killed_again_and_again_ends_the_app_with_a_reason(
    program: Path, root: Path, started: list[RunningApp]
) -> None:
    append(root, 0, 50)
    app = RunningApp(program, root)
    started.append(app)
    for time_ in range(4):
        app.wait_for_epochs(time_ + 1)
        os.kill(java_of(app), signal.SIGKILL)
        append(root, 100 * (time_ + 1), 50)
    assert app.ended() == 1
    assert "was killed by signal 9 (Killed), for the 4th time within 10 minutes\nhint: " in app.stderr
    assert "Traceback" not in app.stderr
    with_another = RunningApp(program, root, "--once")
    started.append(with_another)
    assert with_another.ended() == 0, with_another.stderr
    assert total(root) == 250


@pytest.mark.long
def test_an_app_whose_workers_are_killed_for_ever_stops_and_sets_no_row_aside(
    program: Path, root: Path, started: list[RunningApp]
) -> None:
    append(root, 0, 50)
    app = RunningApp(program, root)
    started.append(app)
    app.wait_for_epochs(1)
    append(root, 100, 50)
    while app.process.poll() is None:
        with suppress(ValueError, OSError):  # it is ending
            kill_workers(app, 0.5)
    assert app.ended() == 1
    assert "that was 6 times, one after the other" in app.stderr
    assert dead(root) == []
    after = RunningApp(program, root, "--once")
    started.append(after)
    assert after.ended() == 0, after.stderr
    assert (total(root), dead(root)) == (100, [])
