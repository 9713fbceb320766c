"""Real processes that run apps: `penstock run` as a user starts it, producers that append meanwhile, and readers."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.derive.views import ViewReader
from penstock.log import Log
from tests.faults.processes import PATIENCE, ROOT, Parent

# Starting Spark takes some ten seconds, on a machine that does nothing else.
START_PATIENCE = 180.0
BACKLOG_PATIENCE = 900.0
PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]
SCHEMA = "id long, kind string, amount long, at timestamp"

PROGRAM = f'''
from penstock import App, AppSettings, topic, tumbling

app = App("shop", settings=AppSettings(state_partitions=2, max_rows=2_000))
events = app.topic("events", schema="{SCHEMA}", key="id", time="at", partitions=2, lateness="1 second")
app.view("totals", events.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
seconds = events.window(tumbling("1 second"), emit="changes")
app.view("seconds", seconds.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
strict = events.window(tumbling("1 second"), emit="changes", late="drop")
app.view("strict", strict.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
app.view("newest", events.latest("kind").select(kind="kind", at="at"))
app.view("large", events.where("amount > 50").select(id="id", amount="amount"))
app.sink("small", events.where("amount <= 50").select(id="id", amount="amount"))
by_kind = events.group_by("kind").agg(events="count(*)", amount="sum(amount)")
app.sink("by_kind", by_kind, to=topic("by_kind", partitions=2))
'''
# What all views must agree on at every moment.
AGREED = """
    select (select coalesce(sum(events), 0) from totals) as totals,
           (select coalesce(sum(events), 0) from seconds) as seconds,
           (select coalesce(sum(amount), 0) from totals) as amount,
           (select coalesce(sum(amount), 0) from seconds) as amount_of_seconds,
           (select count(*) from large) as large,
           (select count(*) from totals) as kinds,
           (select count(*) from newest) as newest
"""


class RunningApp:
    """`penstock run` in a process of its own, which prints a JSON document for every epoch."""

    def __init__(
        self,
        program: Path,
        log: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is where it is started; by default where the tests are."""
        given = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})}
        self.process = subprocess.Popen(
            [*PENSTOCK, "run", str(program), "--json", "--log", str(log), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=given,
            cwd=folder,
            start_new_session=True,
        )
        self.epochs: list[dict[str, Any]] = []
        self.stderr = ""
        self._heard = threading.Condition()
        self._readers = [threading.Thread(target=self._hear), threading.Thread(target=self._listen)]
        for reader in self._readers:
            reader.start()

    def wait_for_epochs(self, count: int) -> None:
        with self._heard:
            found = self._heard.wait_for(lambda: len(self.epochs) >= count or self._ended(), START_PATIENCE)
        assert found, f"no {count} epochs in {START_PATIENCE} seconds"
        assert len(self.epochs) >= count, f"it ended with {self.process.wait()}: {self.stderr}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, patience: float = START_PATIENCE) -> int:
        """Wait for its end; the status."""
        status = self.process.wait(patience)
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status

    def kill(self) -> None:
        """`kill -9` of the program; its JVM ends by itself some time later, and may still be writing."""
        self.process.kill()
        self.ended()

    def kill_within(self, seconds: float) -> None:
        """The same at a random moment before this time is over."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(random.uniform(0, seconds))
        assert self.process.poll() is None, self.stderr
        self.kill()

    def _ended(self) -> bool:
        return self.process.poll() is not None and not self._readers[0].is_alive()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._heard:
                document = json.loads(line)
                if document["event"] == "epoch":
                    self.epochs.append(document)
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line


def until(condition: Callable[[], bool], app: RunningApp) -> None:
    """Wait for something that the app does."""
    deadline = time.monotonic() + START_PATIENCE
    while not condition():
        assert app.process.poll() is None, app.stderr
        assert time.monotonic() < deadline, f"not in {START_PATIENCE} seconds: {app.stderr}"
        threading.Event().wait(0.02)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def java_of(app: RunningApp) -> int:
    """Spark's own process, once it is Java."""
    (java,) = (one for one in children(app.process.pid) if "java" in os.readlink(f"/proc/{one}/exe"))
    return java


def run_once(
    program: Path,
    log: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> RunningApp:
    app = RunningApp(program, log, "--once", *options, environment=environment, folder=folder)
    try:
        assert app.ended(BACKLOG_PATIENCE) == 0, app.stderr
    finally:
        app.kill()
    return app


def command(*words: str | Path) -> str:
    """What a command prints that does not run an app, such as `penstock savepoint list`."""
    done = subprocess.run([*PENSTOCK, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def some_rows(start: int, count: int, *, behind: float = 0.0) -> list[dict[str, Any]]:
    """Events of now, or of some seconds ago."""
    now = datetime.now(UTC) - timedelta(seconds=behind)
    numbers = range(start, start + count)
    return [{"id": one, "kind": "abc"[one % 3], "amount": one % 100, "at": now} for one in numbers]


# -- what children of the nursery do ----------------------------------------------------------------------------------


def produce(parent: Parent, root: str, name: str, first: int, pause: float) -> None:
    """Append a few events at a time, some of them late and some from next year, until the parent says something."""
    stop = threading.Event()
    threading.Thread(target=lambda: (parent.wait(), stop.set()), daemon=True).start()
    with Log(root) as log:
        topic, producer = log.topic("events"), log.producer(name)
        at = first
        for number in itertools.count():
            rows = some_rows(at, random.randrange(1, 20), behind=random.choice([0, 0, 0, 5]))
            if number % 10 == 5:
                rows[0]["at"] += timedelta(days=365)
            producer.append(topic, rows)
            at += len(rows)
            if stop.wait(pause):
                return


def look(parent: Parent, directory: str) -> None:
    """Ask all views at once, again and again, and tell of each new epoch: they agree, and nothing is taken back."""
    last = (-1, 0, 0)
    reader = ViewReader(directory)
    for number in itertools.count():
        if number % 10 == 0:
            reader = ViewReader(directory)  # one that opens everything anew must see the same
        answer = reader.query(AGREED)
        (row,) = answer.rows()
        seen = answer.epoch, row["totals"], row["large"]
        assert row["totals"] == row["seconds"], f"{seen}: {row}"
        assert row["amount"] == row["amount_of_seconds"], f"{seen}: {row}"
        assert row["kinds"] == row["newest"], f"{seen}: {row}"
        assert seen == last or (seen > last and seen[0] > last[0] and seen[2] >= last[2]), f"{last}, then {seen}"
        if seen != last:
            parent.tell("looked", epoch=seen[0])
        last = seen
        threading.Event().wait(0.05)  # asking takes all of a core, which the app needs too
