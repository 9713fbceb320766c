"""Running an app with a stopwatch, and looking at its view. Not a part."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.app import App
from penstock.derive.views import ViewReader
from penstock.log import Log
from penstock.paths import app_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
STEPS = ("plan", "run", "publish", "commit")
# After the commit: what is no longer needed is removed.
AFTER = "clean up"


@dataclass(frozen=True)
class Lap:
    """One epoch: how many rows it took, how long, and the seconds of each of its steps."""

    rows: int
    seconds: float
    steps: dict[str, float]


class Runner:
    """An app that runs epoch by epoch, timed.

    `reached` is called after each step with its name, and its own time counts as that of the next step. The app's clock
    stands still, so that silence ends no windows while something else is measured, unless `live` is set.
    """

    def __init__(
        self,
        app: App,
        log: Log,
        spark: SparkSession,
        *,
        live: bool = False,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        from penstock.engine.epoch import Instance, wall_clock

        began = wall_clock()
        self._outer = reached
        self._marks: list[tuple[str, float]] = []
        clock = wall_clock if live else lambda: began
        self._instance = Instance(app.plan, log, app.settings, spark, clock=clock, reached=self._reached)
        self.views = ViewReader(app_directory(log.path, app.name))

    def step(self) -> Lap | None:
        """Run one epoch; None if there was nothing to do."""
        start = time.perf_counter()
        self._marks = []
        progress = self._instance.step()
        end = time.perf_counter()
        if progress is None:
            return None
        steps = {}
        before = start
        for step, at in [*self._marks, (AFTER, end)]:
            steps[step] = at - before
            before = at
        return Lap(progress.rows, end - start, steps)

    def run(self) -> list[Lap]:
        """Run epochs until nothing is left to do."""
        laps = []
        while (lap := self.step()) is not None:
            laps.append(lap)
        return laps

    def close(self) -> None:
        self._instance.close()

    def _reached(self, step: str) -> None:
        self._marks.append((step, time.perf_counter()))
        self._outer(step)


@contextmanager
def running(
    app: App,
    log: Log,
    spark: SparkSession,
    *,
    live: bool = False,
    reached: Callable[[str], None] = lambda step: None,
) -> Iterator[Runner]:
    runner = Runner(app, log, spark, live=live, reached=reached)
    try:
        yield runner
    finally:
        runner.close()


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Spark as an app starts it, on two cores."""
    from penstock.engine.spark import start_spark

    session = start_spark("benchmarks", MASTER)
    try:
        yield session
    finally:
        session.stop()


def view_rows(views: ViewReader, sql: str) -> pa.Table:
    """What a reader of the views gets."""
    return views.query(sql).rows().to_arrow()


def count_from_environment(name: str, default: int) -> int:
    """A size that can be lowered for trying."""
    return int(os.environ.get(name, str(default)))
