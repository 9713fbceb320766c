"""Running an app until it is told to stop, or up to the present."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.derive.place import app_directory
from penstock.engine.epoch import Instance, Progress
from penstock.engine.spark import SparkSession, has_ended, start_spark
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
# A store that is locked, a disk that is full: so often and so long it is tried again before we give up.
TRY_AGAIN_SECONDS = 1.0
MOST_SECONDS = 300.0

Result = TypeVar("Result")


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


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears what happens: each epoch that is done, what holds us up, and that Spark was ended with us."""

    progress: Callable[[Progress], None]
    waiting: Callable[[UnavailableError], None]
    cut_short: Callable[[], None] = lambda: None


def run(program: Program, manner: Manner, *, stop: threading.Event, listener: Listener) -> None:
    """Run epochs until `stop` is set; the one that is running is finished."""
    with Log(program.log) as log, _spark(program, manner) as spark:

        def begin() -> Instance:
            return Instance(program.plan, log, program.settings, spark, rebuild=manner.rebuild)

        instance = patiently(begin, stop, listener.waiting)
        if instance is None:
            return
        with instance:
            try:
                _run_epochs(instance, manner, stop, listener)
            except Exception:
                # Who ends a whole group of processes ends Spark too. The epoch is planned, and the next start runs it.
                if not stop.is_set() or not has_ended(spark):
                    raise
                listener.cut_short()


@contextmanager
def _spark(program: Program, manner: Manner) -> Iterator[SparkSession]:
    """A session while the app runs. A cluster is told when it ends; on this machine Spark ends with the process."""
    output = app_directory(program.log, program.plan.app) / SPARK_OUTPUT
    spark = start_spark(program.plan.app, manner.master, output=output)
    try:
        yield spark
    finally:
        if manner.master is not None:
            spark.stop()


def _run_epochs(instance: Instance, manner: Manner, stop: threading.Event, listener: Listener) -> None:
    present = instance.present()
    watch = _Watch(instance.topics())
    try:
        while not stop.is_set():
            done = patiently(instance.step, stop, listener.waiting)
            if done is not None:
                listener.progress(done)
            if manner.once and (done is None or not done.rows) and instance.has_read(present):
                return
            if done is None:
                watch.wait(LOOK_SECONDS, stop)
    finally:
        watch.close()


def patiently(
    attempt: Callable[[], Result], stop: threading.Event, waiting: Callable[[UnavailableError], None]
) -> Result | None:
    """Try again while something is not available; None if we are told to stop meanwhile.

    For an epoch that is no harm: its plan stands, so it is the same epoch.
    """
    began = time.monotonic()
    while not stop.is_set():
        try:
            return attempt()
        except UnavailableError as error:
            if time.monotonic() - began > MOST_SECONDS:
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
