"""Answers written to topics, over a backlog of bids: events per second, beside the same answers in views.

A stream: four columns of every bid, as they are. A table: the count and the sum of each of a million accounts, of which
an epoch writes those that have changed. Ours are epochs as every app has them, with the default settings; each runs
twice, and the second time counts. What by hand would be the least is measured too: appending the same rows to a topic,
in one thread, in batches. PENSTOCK_BENCH_BIDS lowers the number of bids for trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from benchmarks.bids import SCHEMA, batches, create_bids
from benchmarks.engine_running import count_from_environment, running, spark_session
from benchmarks.harness import Measurement, compared, seconds, temporary_directory
from penstock.app import App
from penstock.log import Log, TopicSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.flow.stream import Stream
    from penstock.flow.table import Table

EVENTS = count_from_environment("PENSTOCK_BENCH_BIDS", 10_000_000)
COLUMNS = ("auction", "bidder", "price", "date_time")
BIDS = "bids"


def stream(bids: Stream) -> Stream:
    return bids.select(*COLUMNS)


def table(bids: Stream) -> Table:
    return bids.group_by("account").agg(bids="count(*)", price="sum(price)")


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory, Log(directory / "log") as log, spark_session() as spark:
        create_bids(log, BIDS, EVENTS)
        by_hand = appended(log)
        for name, made in (("every bid", stream), ("totals of accounts", table)):
            sink = second_run(log, spark, made, f"sink_{made.__name__}", sinks=True)
            view = second_run(log, spark, made, f"view_{made.__name__}", sinks=False)
            yield compared(f"{name}, to a topic", sink, "events/s", compared_with="to a view", reference=view)
            if made is stream:
                yield compared(
                    f"{name}, to a topic", sink, "events/s", compared_with="appended by hand", reference=by_hand
                )


def second_run(
    log: Log, spark: SparkSession, made: Callable[[Stream], Stream | Table], name: str, *, sinks: bool
) -> float:
    rates = []
    for number in range(2):
        app = App(f"{name}_{number}", log=log.path)
        rows = made(app.topic(BIDS, schema=SCHEMA, time="date_time", to=sinks.topic(app.name, partitions=2)))
        if sinks:
            app.sink(app.name, rows, to=sinks.topic(app.name, partitions=2))
        else:
            app.view(app.name, rows)
        with running(app, log, spark) as runner:
            laps = runner.run()
        rates.append(sum(lap.rows for lap in laps) / sum(lap.seconds for lap in laps))
        if sinks:
            check_written(log, app.name, keyed=made is table)
    return rates[1]


def check_written(log: Log, topic: str, *, keyed: bool) -> None:
    """All bids are there: each as a row, or in the last row of its account."""
    written = log.topic(topic).read().to_arrow()
    count = written.num_rows
    if keyed:
        last = dict(zip(written.column("account").to_pylist(), written.column("bids").to_pylist(), strict=True))
        count = sum(last.values())
    if count != EVENTS + 1:  # there is one more that ends all windows
        raise AssertionError(f"{topic}: {count} bids were written, and there are {EVENTS + 1}")


def appended(log: Log) -> float:
    """Bids per second that one thread appends, as they would come out of the app."""
    schema = ", ".join(column for column in SCHEMA.split(", ") if column.split()[0] in COLUMNS)
    topic = log.create_topic("by_hand", schema, settings=TopicSettings(partitions=2))
    rows = [batch.select(COLUMNS) for batch in batches(EVENTS)]

    def append() -> None:
        for number, batch in enumerate(rows):
            topic.append(batch, partition=number % 2)

    return EVENTS / seconds(append)
