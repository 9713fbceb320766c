"""The queries of the engine's benchmark, each said four times: to Penstock, to a plain Spark batch, to Structured
Streaming, and to DuckDB, whose answer the others must give. Not a part.

Answers are compared without the last bid, which is there to end windows; its own window never ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.bids import PARTITIONS, SCHEMA
from penstock.app import App
from penstock.flow.settings import AppSettings
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.flow.windows import hopping, session, tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATENESS = "4 seconds"  # as in Nexmark
VIEW = "answer"


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """A query as Structured Streaming can say it, what DuckDB answers to that, and how much faster we aim to be."""

    query: Callable[[DataFrame], DataFrame]
    sql: str
    mode: str = "append"
    aim: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query. The first of `answer`'s columns is a number that is negative for the last bid only."""

    name: str
    columns: tuple[str, ...]  # of the bids, that it needs: the peers are told, since they do not find out
    answer: tuple[str, ...]
    ours: Callable[[Stream], Stream | Table]
    batch: Callable[[DataFrame], DataFrame]
    sql: str
    streaming: Streaming


def app_of(query: Query, topic: str, name: str, settings: AppSettings | None = None) -> App:
    app = App(name, settings=settings or AppSettings())
    bids = app.topic(topic, schema=SCHEMA, time="date_time", lateness=LATENESS, partitions=PARTITIONS)
    app.view(VIEW, query.ours(bids))
    return app


# -- filter and projection --------------------------------------------------------------------------------------------


def _filtered(bids: DataFrame) -> DataFrame:
    return bids.where("auction % 123 = 0").select("auction", "price")


_FILTER_SQL = "SELECT auction, price FROM bids WHERE auction % 123 = 0"

FILTER = Query(
    name="filter and projection",
    columns=("auction", "price"),
    answer=("auction", "price"),
    ours=lambda bids: bids.where("auction % 123 = 0").select("auction", "price"),
    batch=_filtered,
    sql=_FILTER_SQL,
    streaming=Streaming(query=_filtered, sql=_FILTER_SQL),
)


# -- tumbling windows -------------------------------------------------------------------------------------------------


def _tumbling(bids: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = bids.groupBy("auction", f.window("date_time", "10 seconds").alias("window"))
    counted = grouped.agg(f.count("*").alias("bids"), f.max("price").alias("highest"))
    return counted.selectExpr("auction", "window.start AS window_start", "bids", "highest")


_TUMBLING_SQL = """
    SELECT auction, time_bucket(INTERVAL 10 seconds, date_time) AS window_start, count(*) AS bids, max(price) AS highest
    FROM bids GROUP BY ALL
"""

TUMBLING = Query(
    name="tumbling 10 s, count and max per auction",
    columns=("auction", "price", "date_time"),
    answer=("auction", "window_start", "bids", "highest"),
    ours=lambda bids: (
        bids.window(tumbling("10 seconds")).group_by("auction").agg(bids="count(*)", highest="max(price)")
    ),
    batch=_tumbling,
    sql=_TUMBLING_SQL,
    streaming=Streaming(query=_tumbling, sql=_TUMBLING_SQL, aim=2),
)


# -- hopping windows --------------------------------------------------------------------------------------------------


def _hopping(bids: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = bids.groupBy("auction", f.window("date_time", "10 seconds", "2 seconds").alias("window"))
    return grouped.agg(f.count("*").alias("bids")).selectExpr("auction", "window.start AS window_start", "bids")


def _hot_items(bids: DataFrame) -> DataFrame:
    ranked = _hopping(bids).selectExpr("*", "rank() OVER (PARTITION BY window_start ORDER BY bids DESC) AS rank")
    return ranked.where("rank = 1").select("auction", "window_start", "bids")


_HOPPING_SQL = """
    SELECT auction, time_bucket(INTERVAL 2 seconds, date_time) - hop * INTERVAL 2 seconds AS window_start,
           count(*) AS bids
    FROM bids, range(5) AS hops(hop) GROUP BY ALL
"""
_HOT_ITEMS_SQL = f"""
    SELECT auction, window_start, bids FROM ({_HOPPING_SQL})
    QUALIFY rank() OVER (PARTITION BY window_start ORDER BY bids DESC) = 1
"""

HOPPING = Query(
    name="hop 10 s / 2 s, auctions with the most bids",
    columns=("auction", "date_time"),
    answer=("auction", "window_start", "bids"),
    ours=lambda bids: (
        bids.window(hopping("10 seconds", "2 seconds"))
        .group_by("auction")
        .agg(bids="count(*)")
        .top(1, by="bids desc", per=["window_start", "window_end"], ties="keep")
    ),
    batch=_hot_items,
    sql=_HOT_ITEMS_SQL,
    streaming=Streaming(query=_hopping, sql=_HOPPING_SQL, aim=3, note="counts only: it cannot rank them"),
)


# -- running aggregate ------------------------------------------------------------------------------------------------


def _running(bids: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return bids.groupBy("account").agg(f.count("*").alias("bids"), f.sum("price").alias("total"))


_RUNNING_SQL = "SELECT account, count(*) AS bids, sum(price) AS total FROM bids GROUP BY ALL"

RUNNING = Query(
    name="running count and sum, 1 million keys",
    columns=("account", "price"),
    answer=("account", "bids", "total"),
    ours=lambda bids: bids.group_by("account").agg(bids="count(*)", total="sum(price)"),
    batch=_running,
    sql=_RUNNING_SQL,
    streaming=Streaming(query=_running, sql=_RUNNING_SQL, mode="update", aim=3),
)


# -- sessions ---------------------------------------------------------------------------------------------------------


def _sessions(bids: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = bids.groupBy("bidder", f.session_window("date_time", "10 seconds").alias("window"))
    return grouped.agg(f.count("*").alias("bids")).selectExpr("bidder", "window.start AS window_start", "bids")


_SESSION_SQL = """
    WITH marked AS (
        SELECT bidder, date_time, coalesce(date_time - lag(date_time) OVER own >= INTERVAL 10 seconds, true) AS opens
        FROM bids WINDOW own AS (PARTITION BY bidder ORDER BY date_time)
    ), numbered AS (
        SELECT bidder, date_time,
               sum(opens::int) OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS number
        FROM marked
    )
    SELECT bidder, min(date_time) AS window_start, count(*) AS bids FROM numbered GROUP BY bidder, number
"""

SESSION = Query(
    name="session, gap 10 s, count per bidder",
    columns=("bidder", "date_time"),
    answer=("bidder", "window_start", "bids"),
    ours=lambda bids: bids.window(session("10 seconds")).group_by("bidder").agg(bids="count(*)"),
    batch=_sessions,
    sql=_SESSION_SQL,
    streaming=Streaming(query=_sessions, sql=_SESSION_SQL, aim=1.5),
)

QUERIES = (FILTER, TUMBLING, HOPPING, RUNNING, SESSION)
