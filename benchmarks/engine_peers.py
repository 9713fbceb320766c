"""What the engine is compared with: one plain Spark batch, Structured Streaming with RocksDB, and transformWithState,
all over the same log. Not a part.

They get two shuffle partitions, one for each core, since with the default of 200 they would be slower; and only the
columns that a query needs, which Penstock finds out by itself. Structured Streaming gets the same watermark, takes as
many rows in a micro-batch as an epoch does, and throws its results away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.engine_queries import LATENESS, Query, Streaming
from penstock.flow.settings import AppSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor
    from pyspark.sql.streaming.listener import StreamingQueryProgress

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Bids:
    """Where the bids are."""

    log: Path
    topic: str


def plain_session(spark: SparkSession) -> SparkSession:
    """A session without any of the engine's settings."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDER)
    return session


def batch(spark: SparkSession, bids: Bids, query: Query) -> DataFrame:
    """The query over all bids, as one batch."""
    reader = spark.read.format("penstock").option("log", str(bids.log)).option("columns", ",".join(query.columns))
    return query.batch(reader.load(bids.topic))


def discard(frame: DataFrame) -> None:
    """Compute all rows, and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


# -- Structured Streaming ---------------------------------------------------------------------------------------------


def streaming_seconds(spark: SparkSession, bids: Bids, query: Query, checkpoint: Path) -> tuple[int, float]:
    """How many rows it took, and the seconds of all its micro-batches, without starting and stopping."""
    frame = _streaming(spark, bids, query.columns, query.streaming)
    batches = _run(frame.writeStream.format("noop").outputMode(query.streaming.mode), checkpoint)
    milliseconds = sum(one.durationMs["triggerExecution"] for one in batches)
    return sum(one.numInputRows for one in batches), milliseconds / 1000


def streaming_answer(spark: SparkSession, bids: Bids, query: Query, checkpoint: Path) -> pa.Table:
    """The rows it gives; in update mode, the last one for each value of the first column."""
    frame = _streaming(spark, bids, query.columns, query.streaming)
    tables: list[pa.Table] = []
    writer = frame.writeStream.outputMode(query.streaming.mode).foreachBatch(
        lambda rows, number: tables.append(rows.toArrow())
    )
    _run(writer, checkpoint)
    whole = pa.concat_tables(tables)
    return whole if query.streaming.mode == "append" else _last_rows(whole)


def _streaming(spark: SparkSession, bids: Bids, columns: tuple[str, ...], streaming: Streaming) -> DataFrame:
    settings = AppSettings()
    reader = (
        spark.readStream.format("penstock")
        .option("log", str(bids.log))
        .option("columns", ",".join(columns))
        .option("maxRowsPerBatch", str(settings.max_rows))
        .option("maxBytesPerBatch", str(settings.max_bytes))
    )
    rows = reader.load(bids.topic)
    timed = rows.withWatermark("date_time", LATENESS) if "date_time" in columns else rows
    return streaming.query(timed)


def _run(writer: DataStreamWriter, checkpoint: Path) -> list[StreamingQueryProgress]:
    """Run it over what is there; what it tells about its micro-batches."""
    started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    started.awaitTermination()
    return started.recentProgress


def _last_rows(table: pa.Table) -> pa.Table:
    key = table.column_names[0]
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    last = numbered.group_by(key).aggregate([("row", "max")])
    return table.take(last.column("row_max"))


# -- transformWithState -----------------------------------------------------------------------------------------------


def stateful(spark: SparkSession, bids: Bids, rows: int, *, pandas: bool) -> DataFrame:
    """The running aggregate as a StatefulProcessor in Python, which is given rows or pandas frames.

    A micro-batch takes `rows` rows.
    """
    schema = "account bigint, bids bigint, total bigint"
    reader = spark.readStream.format("penstock").option("log", str(bids.log)).option("columns", "account,price")
    grouped = reader.option("maxRowsPerBatch", str(rows)).load(bids.topic).groupBy("account")
    if pandas:
        return grouped.transformWithStateInPandas(_pandas_processor(), schema, "Update", "None")
    return grouped.transformWithState(_row_processor(), schema, "Update", "None")


def stateful_answer(frame: DataFrame, checkpoint: Path) -> tuple[pa.Table, float]:
    """The last row of each account, and the rows per second of the best micro-batch."""
    tables: list[pa.Table] = []
    writer = frame.writeStream.outputMode("update").foreachBatch(lambda rows, number: tables.append(rows.toArrow()))
    batches = _run(writer, checkpoint)
    rate = max(one.numInputRows / one.durationMs["triggerExecution"] * 1000 for one in batches)
    return _last_rows(pa.concat_tables(tables)), rate


def _row_processor() -> StatefulProcessor:
    # Inside of a function, so that tasks get the code itself: they may not find this module.
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("totals", "bids bigint, total bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            bids, total = self._state.get() if self._state.exists() else (0, 0)
            for row in rows:
                bids, total = bids + 1, total + row.price
            self._state.update((bids, total))
            yield Row(account=key[0], bids=bids, total=total)

        def close(self) -> None:
            pass

    return Totals()


def _pandas_processor() -> StatefulProcessor:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("totals", "bids bigint, total bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            bids, total = self._state.get() if self._state.exists() else (0, 0)
            for frame in rows:
                bids, total = bids + len(frame), total + int(frame["price"].sum())
            self._state.update((bids, total))
            yield pd.DataFrame({"account": [key[0]], "bids": [bids], "total": [total]})

        def close(self) -> None:
            pass

    return Totals()
