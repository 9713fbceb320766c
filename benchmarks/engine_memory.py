"""The most memory an app takes while it works off a backlog: four times the backlog should take little more of it.

Each backlog is worked off by a process of its own, from Spark's start to the last epoch: tumbling windows, in epochs of
at most a sixteenth of the larger one. Its memory is that of the whole tree of processes: the driver's Python, the JVM,
and the workers; what they hold is looked at ten times a second. Pages of mapped files do not count: the log and the
state are mapped, and such pages are the system's to take back. PENSTOCK_BENCH_BACKLOG lowers the larger backlog for
trying.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.bids import create_bids
from benchmarks.engine_queries import TUMBLING, VIEW, app_of
from benchmarks.engine_running import count_from_environment, running, spark_session, view_rows
from benchmarks.harness import Measurement, compared, temporary_directory
from penstock.flow.settings import AppSettings
from penstock.log import Log

LARGE = count_from_environment("PENSTOCK_BENCH_BACKLOG", 20_000_000)
SMALL = LARGE // 4
SETTINGS = AppSettings(max_rows=LARGE // 16)
AIM = 1.5
SAMPLE_SECONDS = 0.1
SPAWN = multiprocessing.get_context("spawn")


def measurements() -> Iterator[Measurement]:
    small, large = (peak_with_backlog(count) for count in (SMALL, LARGE))
    yield compared(
        f"peak memory, backlog of {LARGE:,} events",
        large.total / 1e6,
        "MB",
        compared_with=f"backlog of {SMALL:,}",
        reference=small.total / 1e6,
        at_most=AIM,
        note=f"{large.note()}; with {SMALL:,} {small.note()}",
    )


@dataclass
class Peak:
    """The most memory that was seen, in bytes: of all processes together, and of each kind."""

    total: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def note(self) -> str:
        return ", ".join(f"{kind} {size / 1e6:,.0f} MB" for kind, size in sorted(self.kinds.items()))

    def see(self, found: dict[str, int]) -> None:
        self.total = max(self.total, sum(found.values()))
        for kind, size in found.items():
            self.kinds[kind] = max(self.kinds.get(kind, 0), size)


def peak_with_backlog(count: int) -> Peak:
    with temporary_directory() as directory:
        with Log(directory / "log") as log:
            create_bids(log, "bids", count)
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=work_off, args=(theirs, directory / "log"))
        process.start()
        theirs.close()  # so that the end of the process is seen as the end of the pipe
        assert process.pid is not None
        with watched(process.pid) as peak:
            counted = received(ours)
        process.join()
    if counted != count:
        raise AssertionError(f"{count} bids were appended; the view counts {counted}")
    return peak


def received(connection: Connection) -> int:
    try:
        counted: int = connection.recv()
    except EOFError:
        raise RuntimeError("the process that works off the backlog has failed") from None
    return counted


def work_off(connection: Connection, path: Path) -> None:
    """In a process of its own: how many bids the view counts at the end."""
    with Log(path) as log, spark_session() as spark:
        with running(app_of(TUMBLING, "bids", "memory", SETTINGS), log, spark) as runner:
            runner.run()
        counted = view_rows(runner.views, f"SELECT sum(bids) AS bids FROM {VIEW}").to_pylist()
        connection.send(counted[0]["bids"])


# -- looking at processes ---------------------------------------------------------------------------------------------


@contextmanager
def watched(root: int) -> Iterator[Peak]:
    """The peak of a process and all its descendants, while the block runs."""
    peak = Peak()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            peak.see(memory_of_tree(root))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def memory_of_tree(root: int) -> dict[str, int]:
    """What the processes that live now hold, added up by kind."""
    found: dict[str, int] = {}
    for process in tree(root):
        status = status_of(process)
        kind = "driver" if process == root else "JVM" if status.get("Name") == "java" else "workers"
        # A process that has just ended has no memory any more.
        found[kind] = found.get(kind, 0) + 1024 * int(status.get("RssAnon", "0 kB").split()[0])
    return found


def tree(root: int) -> set[int]:
    parents = {
        int(name): int(status_of(int(name)).get("PPid", "0")) for name in os.listdir("/proc") if name.isdecimal()
    }
    family = {root}
    while grown := {one for one, parent in parents.items() if parent in family} - family:
        family |= grown
    return family


def status_of(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
