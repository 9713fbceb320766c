"""Five queries over a backlog of bids: events per second, beside one plain Spark batch over the same log, Structured
Streaming with RocksDB, and transformWithState in Python.

Ours are epochs as every app has them, with the default settings, from the log to rows in the views; the others
throw their results away. Everybody runs all queries on a fifth of the bids first. Every answer is compared with that of
DuckDB. PENSTOCK_BENCH_BIDS lowers the number of bids for trying, PENSTOCK_BENCH_STATEFUL_BIDS those for
transformWithState.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.bids import create_bids
from benchmarks.engine_peers import (
    Bids,
    batch,
    discard,
    plain_session,
    stateful,
    stateful_answer,
    streaming_answer,
    streaming_seconds,
)
from benchmarks.engine_queries import QUERIES, RUNNING, VIEW, Query, app_of
from benchmarks.engine_running import count_from_environment, running, spark_session, view_rows
from benchmarks.harness import Measurement, compared, seconds, temporary_directory
from penstock.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = count_from_environment("PENSTOCK_BENCH_BIDS", 10_000_000)
WARM_EVENTS = min(EVENTS, 2_000_000)
STATEFUL_EVENTS = count_from_environment("PENSTOCK_BENCH_STATEFUL_BIDS", 20_000)
STATEFUL_BATCHES = 4
BATCH_AIM, STATEFUL_AIM = 0.4, 50
ALL, FEW, FEWEST = "bids", "few_bids", "fewest_bids"


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory, Log(directory / "log") as log, spark_session() as spark:
        bench = Bench(log, directory, spark, plain_session(spark))
        for topic, count in ((ALL, EVENTS), (FEW, WARM_EVENTS), (FEWEST, STATEFUL_EVENTS)):
            create_bids(log, topic, count)
        for query in QUERIES:
            bench.warm_up(query)
        rates = {}
        for query in QUERIES:
            rates[query.name] = rate = bench.run_ours(query, ALL)
            yield bench.beside_batch(query, rate)
            yield bench.beside_streaming(query, rate)
        for pandas in (False, True):
            yield bench.beside_stateful(rates[RUNNING.name], pandas=pandas)


@dataclass(frozen=True)
class Rate:
    """Events per second, and what made them up."""

    events: float
    note: str


@dataclass(frozen=True)
class Bench:
    """The bids in a log, and the Spark sessions: the app's, and a plain one for the others."""

    log: Log
    directory: Path
    spark: SparkSession
    plain: SparkSession

    def warm_up(self, query: Query) -> None:
        """Run the query on all sides over a few bids. What Structured Streaming gives is looked at only here."""
        self.run_ours(query, FEW)
        discard(batch(self.plain, self._bids(FEW), query))
        answer = streaming_answer(self.plain, self._bids(FEW), query, self._checkpoint(query, FEW))
        check(query, answer, self._expected(query, FEW, query.streaming.sql), "Structured Streaming")

    # -- ours ---------------------------------------------------------------------------------------------------------

    def run_ours(self, query: Query, topic: str) -> Rate:
        name = f"{topic}_{QUERIES.index(query)}"
        with running(app_of(query, topic, name), self.log, self.spark) as runner:
            laps = runner.run()
            answer = view_rows(runner.views, f"SELECT {', '.join(query.answer)} FROM {VIEW}")
        check(query, answer, self._expected(query, topic), "Penstock")
        spent = sum(lap.seconds for lap in laps)
        note = f"{len(laps)} epochs"
        return Rate(sum(lap.rows for lap in laps) / spent, note)

    # -- the others ---------------------------------------------------------------------------------------------------

    def beside_batch(self, query: Query, ours: Rate) -> Measurement:
        frame = batch(self.plain, self._bids(ALL), query)
        discarded = seconds(lambda: discard(frame))
        answers: list[pa.Table] = []
        collected = seconds(lambda: answers.append(batch(self.plain, self._bids(ALL), query).toArrow()))
        check(query, answers[0], self._expected(query, ALL), "the Spark batch")
        return compared(
            query.name,
            ours.events,
            "events/s",
            compared_with="one Spark batch, result discarded",
            reference=EVENTS / discarded,
            at_least=BATCH_AIM,
            note=f"{ours.note}; with its {answers[0].num_rows:,} rows collected the batch does "
            f"{EVENTS / collected:,.4g} events/s, ratio {ours.events * collected / EVENTS:.2g}",
        )

    def beside_streaming(self, query: Query, ours: Rate) -> Measurement:
        rows, spent = streaming_seconds(self.plain, self._bids(ALL), query, self._checkpoint(query, ALL))
        if rows != EVENTS + 1:
            raise AssertionError(f"{query.name}: Structured Streaming took {rows} rows of {EVENTS + 1}")
        return compared(
            query.name,
            ours.events,
            "events/s",
            compared_with="Structured Streaming, RocksDB, result discarded",
            reference=rows / spent,
            at_least=query.streaming.aim,
            note=query.streaming.note,
        )

    def beside_stateful(self, ours: Rate, *, pandas: bool) -> Measurement:
        """The running aggregate. Their best micro-batch counts, since the first one starts workers."""
        name = "transformWithStateInPandas" if pandas else "transformWithState"
        frame = stateful(self.plain, self._bids(FEWEST), STATEFUL_EVENTS // STATEFUL_BATCHES, pandas=pandas)
        answer, rate = stateful_answer(frame, self.directory / "checkpoints" / name)
        check(RUNNING, answer, self._expected(RUNNING, FEWEST), name)
        return compared(
            RUNNING.name,
            ours.events,
            "events/s",
            compared_with=f"{name} in Python, best of {STATEFUL_BATCHES} micro-batches",
            reference=rate,
            at_least=STATEFUL_AIM,
            note=f"{STATEFUL_EVENTS:,} events of {answer.num_rows:,} keys there",
        )

    def _bids(self, topic: str) -> Bids:
        return Bids(self.log.path, topic)

    def _checkpoint(self, query: Query, topic: str) -> Path:
        return self.directory / "checkpoints" / f"{topic}_{QUERIES.index(query)}"

    def _expected(self, query: Query, topic: str, sql: str = "") -> pa.Table:
        """DuckDB's answer."""
        return duckdb_answer(self.log.topic(topic).read(columns=query.columns).to_arrow(), sql or query.sql)


def duckdb_answer(bids: pa.Table, sql: str) -> pa.Table:
    with duckdb.connect(config={"threads": 2}) as connection:
        # Without their zone, which is UTC: DuckDB would need an extension for it.
        connection.register("bids", pa.table({name: _without_zone(bids[name]) for name in bids.column_names}))
        return connection.sql(sql).to_arrow_table()


def check(query: Query, answer: pa.Table, expected: pa.Table, who: str) -> None:
    """A benchmark of something that is wrong is worth nothing."""
    found, right = comparable(answer, query.answer), comparable(expected, query.answer)
    if not found.equals(right):
        raise AssertionError(f"{query.name}: {who} gives {found.num_rows} rows; they are not DuckDB's {right.num_rows}")


def comparable(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Whole numbers in one order, without those of the last bid. A time is its microseconds."""
    chosen = table.select(names)
    numbers = pa.table({name: _without_zone(chosen[name]).cast(pa.int64()) for name in names})
    kept = numbers.filter(pc.greater_equal(numbers[names[0]], 0))
    return kept.sort_by([(name, "ascending") for name in names]).combine_chunks()


def _without_zone(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
