"""Nexmark's queries q0 to q22 over a backlog of events: events per second, peak memory, beside DuckDB and Structured
Streaming.

Each query is an app of its own, in SQL, in a process of its own, with the default settings, from the log to rows in the
view. It runs twice over all events, and the second time counts: in the first one the JVM compiles what it runs,
which a program that runs for months does once. Events are those of the topics that the query reads. DuckDB answers each
query once, from tables of its own. Structured Streaming with RocksDB gets the same text over a tenth of the events,
twice as well, where it accepts it, and throws its rows away. How many rows a view has is compared with DuckDB's answer;
that they are the same rows is tested over fewer events. PENSTOCK_BENCH_NEXMARK lowers the number of events for trying,
PENSTOCK_BENCH_NEXMARK_ONLY names the queries to run: `q3,q4`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from benchmarks.engine_memory import SPAWN, Peak, watched
from benchmarks.engine_peers import plain_session
from benchmarks.engine_running import count_from_environment, running, spark_session, view_rows
from benchmarks.harness import Measurement, compared, seconds, temporary_directory
from benchmarks.nexmark.generator import TIME, batches, create_side_input, create_topics, side_input
from benchmarks.nexmark.oracle import QUERIES, TABLES, load, sql
from penstock.app import App, load_app
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.paths import app_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = count_from_environment("PENSTOCK_BENCH_NEXMARK", 10_000_000)
FEW_EVENTS = max(50_000, EVENTS // 10)
CHOSEN = tuple(filter(None, os.environ.get("PENSTOCK_BENCH_NEXMARK_ONLY", "").split(","))) or QUERIES
# What Flink SQL with its state in memory did on two cores, for scale.
AIMS = {"q3": 879_000, "q4": 365_000}
LATENESS = "4 seconds"

_FOLDER = Path(__file__).parent / "nexmark"


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory:
        for name, count in (("all", EVENTS), ("few", FEW_EVENTS)):
            with Log(directory / name) as log:
                create_topics(log, count)
                create_side_input(log)
        database = directory / "events.duckdb"
        with duckdb.connect(database) as connection:
            load(connection, batches(EVENTS))
        for query in CHOSEN:
            yield from measured(query, directory, database)


def measured(query: str, directory: Path, database: Path) -> Iterator[Measurement]:
    ran, streaming, peak = in_a_process(query, directory)
    rows, theirs = asked(query, database)
    if ran.rows != rows:
        raise AssertionError(f"{query}: the view has {ran.rows} rows, DuckDB's answer {rows}")
    rate = ran.events / ran.seconds
    aim = AIMS.get(query)
    yield Measurement(
        name=query,
        value=rate,
        unit="events/s",
        compared_with=f"DuckDB, once: {ran.events / theirs:,.4g} events/s",
        ratio=theirs / ran.seconds,
        aim=f">= {aim:,} events/s" if aim else "",
        met=rate >= aim if aim else None,
        note=f"{ran.events:,} events, {rows:,} rows; {ran.epochs} epochs; "
        f"peak {peak.total / 1e6:,.0f} MB ({peak.note()})",
    )
    if streaming is not None:
        yield compared(
            query,
            rate,
            "events/s",
            compared_with="Structured Streaming, RocksDB, result discarded",
            reference=streaming,
            note="a tenth of the events there",
        )


def asked(query: str, database: Path) -> tuple[int, float]:
    """How many rows DuckDB's answer has, and how long it took."""
    with duckdb.connect(database, config={"threads": 2}) as connection:
        connection.execute("CREATE OR REPLACE TEMP TABLE answer AS SELECT 1")  # DuckDB starts its threads
        spent = seconds(lambda: connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {sql(query)}"))
        counted = connection.execute("SELECT count(*) FROM answer").fetchone()
        assert counted is not None
        return int(counted[0]), spent


# -- in a process of its own ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What became of a query: the events it read and the rows it gave, and seconds."""

    events: int
    rows: int
    epochs: int
    seconds: float


def in_a_process(query: str, directory: Path) -> tuple[Ran, float | None, Peak]:
    """What became of the query; how many events Structured Streaming does in a second, if it can; and our memory."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=work_off, args=(theirs, query, directory))
    process.start()
    theirs.close()  # so that the end of the process is seen as the end of the pipe
    assert process.pid is not None
    try:
        with watched(process.pid) as peak:
            ran: Ran = ours.recv()
        ours.send("go on")
        streaming: float | None = ours.recv()
    except EOFError:
        raise RuntimeError(f"{query}: the process that runs it has failed") from None
    process.join()
    return ran, streaming, peak


def work_off(connection: Connection, query: str, directory: Path) -> None:
    """In a process of its own: run the query, and let Structured Streaming run it."""
    with spark_session() as spark:
        run_ours(query, directory / "all", spark, f"{query}_first")
        connection.send(run_ours(query, directory / "all", spark, query))
        connection.recv()  # the memory that is watched is ours
        streaming_rate(query, directory, spark, "first")
        connection.send(streaming_rate(query, directory, spark, "second"))


def run_ours(query: str, path: Path, spark: SparkSession, name: str) -> Ran:
    with Log(path) as log:
        with running(app_of(query, path, name), log, spark) as runner:
            laps = runner.run()
            rows = view_rows(runner.views, f"SELECT count(*) AS n FROM {query}").to_pylist()[0]["n"]
        shutil.rmtree(app_directory(path, name))  # the views of all queries would fill the disk
    return Ran(sum(one.rows for one in laps), rows, len(laps), sum(one.seconds for one in laps))


def app_of(query: str, path: Path, name: str) -> App:
    """The topics, and one view."""
    program = path.parent / f"{name}.sql"
    program.write_text((_FOLDER / "topics.sql").read_text() + (_FOLDER / "queries" / f"{query}.sql").read_text())
    return load_app(program)


# -- Structured Streaming ---------------------------------------------------------------------------------------------


def streaming_rate(query: str, directory: Path, spark: SparkSession, name: str) -> float | None:
    """Events in a second of its micro-batches; None where it does not accept the query."""
    from pyspark.errors import PySparkException

    plain = plain_session(spark)
    for table in TABLES:
        reader = plain.readStream.format("penstock").option("log", str(directory / "few"))
        rows = reader.option("maxRowsPerBatch", str(AppSettings().max_rows)).load(table)
        rows.withWatermark(TIME, LATENESS).createOrReplaceTempView(table)
    plain.createDataFrame(side_input().to_pandas()).createOrReplaceTempView("side_input")
    text = (_FOLDER / "queries" / f"{query}.sql").read_text()
    select = text[text.index(" AS") + 3 :].rstrip().removesuffix(";")
    for mode in ("append", "update"):
        try:
            checkpoint = str(directory / "checkpoints" / query / name / mode)
            writer = plain.sql(select).writeStream.format("noop").outputMode(mode)
            started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        except PySparkException:
            continue
        started.awaitTermination()
        spent = sum(one.durationMs["triggerExecution"] for one in started.recentProgress) / 1000
        return sum(one.numInputRows for one in started.recentProgress) / spent
    return None
