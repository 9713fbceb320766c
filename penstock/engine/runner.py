"""Running an app until it is told to stop, or up to the present."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.derive.place import app_directory
from penstock.engine.inputs import open_inputs
from penstock.engine.instance import Instance, Progress
from penstock.engine.spark import start_spark
from penstock.errors import UnavailableError
from penstock.flow import plan as flow
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.log.topic import Topic
from penstock.log.wait import Watch

# In the app's folder: what Spark itself has to say.
SPARK_OUTPUT = "spark.log"
# With nothing to read, the clock may still close windows: so often it is looked at.
LOOK_SECONDS = 1.0
# A store that is locked, a disk that is full: so often and so long an epoch is tried again before we give up.
TRIES = 60
TRY_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run: a plan, the log it reads, and settings."""

    plan: flow.Plan
    log: Path
    settings: AppSettings


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is to be run. `once`: to the present, and then end. `master`: the Spark cluster; None: this machine."""

    once: bool = False
    rebuild: bool = False
    master: str | None = None


def run(
    program: Program,
    manner: Manner,
    *,
    stop: threading.Event,
    progress: Callable[[Progress], None],
    waiting: Callable[[UnavailableError], None],
) -> None:
    """Run epochs until `stop` is set; the one that is running is finished. `waiting` hears of what holds us up."""
    with Log(program.log) as log:
        spark = start_spark(
            program.plan.app, manner.master, output=app_directory(log.path, program.plan.app) / SPARK_OUTPUT
        )
        watch = _Watch(one.topic for one in open_inputs(log, program.plan).values())
        try:
            with Instance(program.plan, log, program.settings, spark, rebuild=manner.rebuild) as instance:
                while not stop.is_set():
                    done = _step(instance, stop, waiting)
                    if done is not None:
                        progress(done)
                    if manner.once and (done is None or not (done.rows or done.building)):
                        return
                    if done is None:
                        watch.wait(LOOK_SECONDS, stop)
        finally:
            watch.close()


def _step(
    instance: Instance, stop: threading.Event, waiting: Callable[[UnavailableError], None]
) -> Progress | None:
    """One epoch, tried again while something is not available: its plan stands, so it is the same epoch."""
    for attempt in range(TRIES):
        try:
            return instance.step()
        except UnavailableError as error:
            if attempt == TRIES - 1 or stop.is_set():
                raise
            waiting(error)
            stop.wait(TRY_AGAIN_SECONDS)
    return None


class _Watch:
    """Wakes us when something is appended to one of some topics."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        paths = [
            topic.partition(number).tail_file.path for topic in topics for number in range(topic.settings.partitions)
        ]
        self._watch = Watch(paths)

    def wait(self, seconds: float, stop: threading.Event) -> None:
        until = time.monotonic() + seconds
        # Signals end no wait here, so it is short enough to stop soon.
        while not stop.is_set() and time.monotonic() < until and not self._watch.wait(0.1):
            pass

    def close(self) -> None:
        self._watch.close()
