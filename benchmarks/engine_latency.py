"""From append to visible in the view at 10,000 events a second, and where the time of a small epoch goes.

A producer in a process of its own appends 100 events every 10 ms, synced. The app counts them per customer. After each
commit the view is read as anybody would read it: the events it counts are visible at that moment, and their latency is
the time since just before their append. The epoch is also put beside a Spark job of the same shape that does nothing.
PENSTOCK_BENCH_SECONDS lowers the seconds for trying.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.engine_running import AFTER, STEPS, Lap, Runner, count_from_environment, running, spark_session
from benchmarks.harness import Measurement, compared, percentile, seconds, temporary_directory
from penstock.app import App
from penstock.log import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS = count_from_environment("PENSTOCK_BENCH_SECONDS", 60)
WARM_SECONDS = 20  # of the producer, before what is measured: the first epochs take seconds
BATCH_EVENTS = 100
BATCHES_PER_SECOND = 100
CUSTOMERS = 1_000
AIM = 0.8  # seconds
EMPTY_JOBS = 30
SCHEMA = "id bigint, customer bigint"
SPAWN = multiprocessing.get_context("spawn")


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory, Log(directory / "log") as log, spark_session() as spark:
        watched = watch(log, spark)
        empty = empty_job_seconds(spark)
    yield from latencies(watched, empty)
    yield from where_time_goes(watched, empty)


@dataclass
class Watched:
    """What was seen: when each batch was appended, how many events the view counted when, and the epochs."""

    appended: list[float] = field(default_factory=list)
    visible: list[tuple[float, int]] = field(default_factory=list)
    laps: list[Lap] = field(default_factory=list)

    def latencies(self) -> np.ndarray:
        """Of all batches after the warm-up: until the first moment at which the view counted the whole batch."""
        moments, counts = (np.array(column) for column in zip(*self.visible, strict=True))
        last_events = BATCH_EVENTS * (1 + np.arange(len(self.appended)))
        found = np.searchsorted(counts, last_events)
        return (moments[found] - np.array(self.appended))[WARM_SECONDS * BATCHES_PER_SECOND :]


# -- the app and its producer -----------------------------------------------------------------------------------------


def watch(log: Log, spark: SparkSession) -> Watched:
    """Run the app until the producer has ended and all of its events are visible."""
    watched = Watched()
    app = counting_app()

    def look(step: str) -> None:
        if step == "commit":
            watched.visible.append(count_in_view(runner))

    with running(app, log, spark, live=True, reached=look) as runner, producer(log.path) as batches:
        while True:
            if not watched.appended and batches.poll():
                watched.appended = batches.recv()
            lap = runner.step()
            if lap is not None:
                watched.laps.append(lap)
            elif watched.appended:
                return checked(watched)
            else:
                time.sleep(0.001)  # the producer is about to append


def counting_app() -> App:
    app = App("latency")
    events = app.topic("events", schema=SCHEMA)
    app.view("counts", events.group_by("customer").agg(events="count(*)", newest="max(id)"))
    return app


def count_in_view(runner: Runner) -> tuple[float, int]:
    ((count,),) = runner.views.query("SELECT coalesce(sum(events), 0) FROM counts")
    return time.monotonic(), int(str(count))


def checked(watched: Watched) -> Watched:
    appended, seen = len(watched.appended) * BATCH_EVENTS, watched.visible[-1][1]
    if appended != seen:
        raise AssertionError(f"{appended} events were appended; the view counts {seen}")
    return watched


@contextmanager
def producer(log: Path) -> Iterator[Connection]:
    """A process that appends, and at last sends when it did."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=append_steadily, args=(theirs, log))
    process.start()
    theirs.close()  # so that the end of the process is seen as the end of the pipe
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def append_steadily(connection: Connection, path: Path) -> None:
    """In a process of its own. The monotonic clock of Linux is the same in all processes."""
    random = np.random.default_rng(1)
    appended = []
    with Log(path) as log:
        topic = log.topic("events")
        start = time.monotonic()
        for number in range((WARM_SECONDS + SECONDS) * BATCHES_PER_SECOND):
            time.sleep(max(0.0, start + number / BATCHES_PER_SECOND - time.monotonic()))
            ids = np.arange(number * BATCH_EVENTS, (number + 1) * BATCH_EVENTS)
            batch = pa.record_batch({"id": ids, "customer": random.integers(0, CUSTOMERS, BATCH_EVENTS)})
            appended.append(time.monotonic())
            topic.append(batch)
    connection.send(appended)


# -- an empty job of the same shape -----------------------------------------------------------------------------------


def empty_job_seconds(spark: SparkSession) -> float:
    """The median of a job with the stages of an epoch, which reads nothing, keeps nothing and writes nothing."""
    from penstock.engine.spark import session_for

    job = empty_job(session_for(spark, 2))
    times = [seconds(lambda: job.select("*").toArrow()) for _ in range(2 * EMPTY_JOBS)]
    return statistics.median(times[EMPTY_JOBS:])


def empty_job(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as f

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    read = spark.range(0, 2, 1, 2).mapInArrow(same, "id bigint")
    return read.groupBy("id").agg(f.count("*").alias("events")).mapInArrow(same, "id bigint, events bigint")


# -- what is said about them ------------------------------------------------------------------------------------------


def latencies(watched: Watched, empty: float) -> Iterator[Measurement]:
    times = watched.latencies().tolist()
    for percent in (50, 99):
        value = percentile(times, percent)
        beside_empty = compared(
            f"append to visible, 10,000 events/s, p{percent}",
            value,
            "s",
            compared_with="an empty Spark job of the same shape, median",
            reference=empty,
            note=f"{len(times):,} appends of {BATCH_EVENTS} in {SECONDS} s, longest {max(times):.2f} s",
        )
        yield replace(beside_empty, aim=f"< {AIM} s", met=value < AIM) if percent == 50 else beside_empty


def where_time_goes(watched: Watched, empty: float) -> Iterator[Measurement]:
    laps = watched.laps[len(watched.laps) // 3 :]  # the first are slower, until the JVM has compiled what it runs
    whole = statistics.median(lap.seconds for lap in laps)
    yield compared(
        "small epoch, median",
        whole,
        "s",
        compared_with="an empty Spark job of the same shape, median",
        reference=empty,
        note=f"{len(laps)} epochs of {statistics.median(lap.rows for lap in laps):,.0f} events",
    )
    for step in (*STEPS, AFTER):
        yield step_of(step, laps, whole)


def step_of(step: str, laps: Sequence[Lap], whole: float) -> Measurement:
    spent = statistics.median(lap.steps[step] for lap in laps)
    note = "with the look at the view" if step == "commit" else ""
    name = f"of that, step '{step}', median"
    return compared(name, spent, "s", compared_with="the whole epoch", reference=whole, note=note)
