"""`penstock run` with captures: what it says, how it ends, and that no process is left, whoever ends it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.derive.views import query
from tests.capture.waiting import is_alive, wait_until

Start = Callable[..., "subprocess.Popen[str]"]

SHOP = """
from penstock import App, AppSettings

app = App("shop", settings=AppSettings(state_partitions=1))
customers = app.capture("sqlite:///{path}", table="customers", schema="id bigint not null, country string")
app.view("countries", customers.group_by("country").agg(customers="count(*)"))
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The program; its database is beside it."""
    path = tmp_path / "shop.py"
    path.write_text(SHOP.format(path=tmp_path / "shop.db"))
    execute(tmp_path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, country TEXT)")
    execute(tmp_path, "INSERT INTO customers VALUES (1, 'DE'), (2, 'DE'), (3, 'FR')")
    return path


def execute(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db", timeout=60)) as connection, connection:
        connection.execute(statement)


def countries(folder: Path) -> dict[str, int]:
    rows = query(folder / "apps" / "shop", "select country, customers from countries").rows()
    return {row["country"]: row["customers"] for row in rows}


def heard_until(process: subprocess.Popen[str], event: str) -> list[dict[str, Any]]:
    """The events up to the first of this kind."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == event:
            return events
    raise AssertionError(f"it has ended before '{event}': {events}")


def test_once_captures_up_to_the_present_and_ends(start: Start, shop: Path, folder: Path) -> None:
    for statement, expected in (
        ("SELECT 1", {"DE": 2, "FR": 1}),
        ("UPDATE customers SET country = 'FR' WHERE id = 1", {"DE": 1, "FR": 2}),
    ):
        execute(shop.parent, statement)
        process = start("run", str(shop), "--once")
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert "capture 'shop': ended" in said
        assert countries(folder) == expected


def test_a_capture_that_fails_is_said_once_and_the_app_continues(start: Start, shop: Path, folder: Path) -> None:
    assert start("run", str(shop), "--once").wait() == 0
    execute(shop.parent, "DROP TABLE customers")
    process = start("run", str(shop), "--once")
    _, said = process.communicate()
    assert process.returncode == 1, said
    assert said.count("capture 'shop': ") == 2  # that it runs, and why it has ended
    assert "hint: " in said
    assert said.splitlines()[-1].startswith("stopped after ")
    status = start("status")
    assert "failed" in status.communicate()[0]


def test_without_capture_it_says_what_is_missing(start: Start, shop: Path, folder: Path) -> None:
    process = start("run", str(shop), "--once", "--no-capture")
    _, said = process.communicate()
    assert process.returncode == 1
    assert "error: capture 'shop': customers has never been captured into this log" in said
    assert "hint: run without --no-capture, or: penstock capture run sqlite:///" in said


@pytest.mark.parametrize(
    "signals", [[signal.SIGKILL], [signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM]]
)
def test_no_process_is_left_whoever_ends_it(
    start: Start, shop: Path, folder: Path, signals: list[signal.Signals]
) -> None:
    process = start("run", str(shop), "--json")
    captured = next(event for event in heard_until(process, "ready") if event.get("what") == "started")
    assert is_alive(captured["process"])
    for number in signals:
        os.kill(process.pid, number)
    process.communicate()
    assert process.returncode == -signals[0]
    wait_until(lambda: not is_alive(captured["process"]), "the end of the capture")


def test_a_killed_capture_is_started_again_while_the_app_runs(start: Start, shop: Path, folder: Path) -> None:
    process = start("run", str(shop), "--json")
    captured = next(event for event in heard_until(process, "ready") if event.get("what") == "started")
    os.kill(captured["process"], signal.SIGKILL)
    execute(shop.parent, "INSERT INTO customers VALUES (4, 'IT')")
    heard_until(process, "epoch")
    assert countries(folder) == {"DE": 2, "FR": 1, "IT": 1}
    process.terminate()
    process.communicate()
