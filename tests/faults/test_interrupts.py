"""Ctrl-C and SIGTERM at any moment: one line, the right status, no process left, and no row that pays for it."""

from __future__ import annotations

import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.log import Log, TopicSettings
from tests.faults.app_processes import SCHEMA, START_PATIENCE, RunningApp, run_once, some_rows, until
from tests.faults.processes import ROOT

# The function takes its time, so that most signals hit it, and does what users' functions do: it catches everything.
PROGRAM = f'''
from penstock import App, AppSettings


def check(rows):
    from pyspark.sql.functions import udf

    @udf("long")
    def check(amount):
        import time

        try:
            time.sleep(0.002)
        except BaseException as error:
            raise ValueError("interrupted: this is no amount") from error
        return amount

    return rows.withColumn("amount", check("amount"))


app = App("shop", settings=AppSettings(state_partitions=2, max_rows=50))
events = app.topic("events", schema="{SCHEMA}", key="id", time="at", partitions=2, lateness="1 second")
app.view("totals", events.map(check, schema="{SCHEMA}").group_by("kind").agg(events="count(*)", amount="sum(amount)"))
'''


@pytest.fixture
def program(tmp_path: Path, root: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM)
    with Log(root) as log:
        log.create_topic("events", SCHEMA, settings=TopicSettings(partitions=2, key=("id",), time="at"))
    return path


@pytest.fixture
def started() -> Iterator[list[RunningApp]]:
    """What still runs at the end of the test is killed."""
    apps: list[RunningApp] = []
    yield apps
    for app in apps:
        app.kill()


def append(root: Path, start: int, count: int) -> None:
    with Log(root) as log:
        log.topic("events").append(some_rows(start, count))


def topics(root: Path) -> list[str]:
    with Log(root) as log:
        return log.topics()


def descendants(parent: int) -> list[int]:
    """All processes that this one has started, and those that they have started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, layer = [], [parent]
    while layer:
        layer = [process for process, its_parent in parents.items() if its_parent in layer]
        found += layer
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def assert_gone(processes: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, processes)), f"of {processes} some are still running")


def random_moments(default: int) -> Iterator[float]:
    """So many moments within an epoch or two; more in the long run."""
    dice = random.Random(7)
    for _ in range(20 * default if os.environ.get("PENSTOCK_TEST_LONG") == "1" else default):
        yield dice.uniform(0, 0.6)


def test_an_interrupt_of_all_processes_at_any_moment_makes_no_row_dead(
    program: Path, root: Path, started: list[RunningApp]
) -> None:
    appended = 0
    for moment in random_moments(2):
        append(root, appended, 400)
        appended += 400
        app = RunningApp(program, root)
        started.append(app)
        app.wait_for_epochs(1)
        processes = descendants(app.process.pid)
        with suppress(subprocess.TimeoutExpired):
            app.process.wait(moment)
        # As a supervisor does that signals every process: those of Spark first, then the app.
        number = random.choice([signal.SIGINT, signal.SIGTERM])
        for process in [*descendants(app.process.pid), app.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        assert app.ended() == -number, app.stderr
        assert re.search(r"\nstopped (in the middle|after)[^\n]*\n$", app.stderr), app.stderr
        assert "error" not in app.stderr
        assert "Traceback" not in app.stderr
        assert "waiting since" not in app.stderr
        assert_gone(processes)
        assert "shop.dead" not in topics(root)
    done = run_once(program, root)
    assert sum(epoch["dead"] for epoch in done.epochs) == 0
    assert "shop.dead" not in topics(root)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_while_spark_starts_ends_its_process_too(program: Path, root: Path, number: signal.Signals) -> None:
    for moment in (0.0, 1.2, 1.4, 1.6):
        app = RunningApp(program, root)
        try:
            until(lambda app=app: "starting Spark" in app.stderr, app)  # type: ignore[misc]
            with suppress(subprocess.TimeoutExpired):
                app.process.wait(moment)
            processes = descendants(app.process.pid)
            app.signal(number)
            assert app.ended() == -number
            assert [line for line in app.stderr.splitlines() if "ready" not in line] == [
                "app 'shop': starting Spark",
                "stopped after 0 epochs and 0 rows",
            ]
            assert_gone(processes)
        finally:
            app.kill()


# -- on a terminal -----------------------------------------------------------------------------------------------------


class Terminal:
    """A program in a pseudo terminal."""

    def __init__(self, *command: str | Path, folder: Path) -> None:
        self.process, self._terminal = pty.fork()
        if self.process == 0:  # pragma: no cover - another process
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests in the background of a shell ignore it
            os.chdir(folder)
            os.environ |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
            os.execv(sys.executable, [sys.executable, *map(str, command)])
        self.shown = ""
        os.set_blocking(self._terminal, False)

    def wait_for(self, text: str) -> None:
        def is_shown() -> bool:
            self._read()
            return text in self.shown

        wait_until(is_shown, f"{text!r} is not shown: {self.shown!r}")

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def ended(self) -> int:
        """Wait for its end; the status."""
        ended: list[int] = []

        def has_ended() -> bool:
            self._read()
            process, status = os.waitpid(self.process, os.WNOHANG)
            ended.extend([os.waitstatus_to_exitcode(status)] if process else [])
            return bool(ended)

        wait_until(has_ended, f"it does not end: {self.shown!r}")
        self._read()
        os.close(self._terminal)
        return ended[0]

    def lines(self) -> list[str]:
        """What is left on the screen: of each line what was written last."""
        return [line.rpartition("\x1b[K")[2].strip() for line in self.shown.strip().split("\n")]

    def _read(self) -> None:
        with suppress(OSError):
            while part := os.read(self._terminal, 65536):
                self.shown += part.decode(errors="replace")


CTRL_C = "\x03"


def test_ctrl_c_on_a_terminal_leaves_one_line(program: Path, root: Path, tmp_path: Path) -> None:
    terminal = Terminal("-m", "penstock", "run", program, "--log", root, folder=tmp_path)
    terminal.wait_for("ready, waiting for rows in events")
    processes = descendants(terminal.process)
    terminal.press(CTRL_C)
    assert terminal.ended() == -signal.SIGINT
    assert terminal.lines() == [
        "app 'shop': starting Spark",
        "app 'shop': ready, waiting for rows in events",
        "stopped after 0 epochs and 0 rows",
    ]
    assert_gone(processes)


def test_ctrl_c_pressed_twice_stops_at_once_and_leaves_no_process(program: Path, root: Path, tmp_path: Path) -> None:
    program.write_text(PROGRAM.replace("time.sleep(0.002)", "time.sleep(600)"))
    append(root, 0, 10)
    terminal = Terminal("-m", "penstock", "run", program, "--log", root, folder=tmp_path)
    terminal.wait_for("starting Spark")
    plans = root / "apps" / "shop" / "staged"
    wait_until(lambda: any(plans.glob("*/*/assignment.json")), "no epoch runs")
    processes = descendants(terminal.process)
    terminal.press(CTRL_C)
    terminal.wait_for("press Ctrl-C again to stop at once")
    terminal.press(CTRL_C)
    assert terminal.ended() == -signal.SIGINT
    assert terminal.lines()[-1] == "stopped at once; the next start runs the epoch again"
    assert "Traceback" not in terminal.shown
    assert_gone(processes)


def test_ctrl_c_ends_tail(program: Path, root: Path, tmp_path: Path) -> None:
    append(root, 0, 1)
    tail = Terminal("-m", "penstock", "tail", "events", "-f", "--log", root, folder=tmp_path)
    tail.wait_for("id=0")
    tail.press(CTRL_C)
    assert tail.ended() == 0  # that is how one ends it
    assert "Traceback" not in tail.shown


def test_ctrl_c_in_produce_says_what_was_stored(program: Path, root: Path, tmp_path: Path) -> None:
    produce = Terminal("-m", "penstock", "produce", "events", "--log", root, folder=tmp_path)
    produce.press('{"id": 7, "kind": "a", "amount": 1, "at": "2024-05-01T12:00:00Z"}\n')
    with Log(root) as log:  # a line that is typed is stored at once, not at the end of the input
        wait_until(lambda: sum(log.topic("events").ends().values()) == 1, "the row is not stored")
    produce.press(CTRL_C)
    assert produce.ended() == -signal.SIGINT
    assert "stored 1 row in 'events'; the last was line 1" in produce.shown
    assert "Traceback" not in produce.shown
