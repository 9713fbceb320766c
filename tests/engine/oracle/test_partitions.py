"""Rows find the state of their key whatever lies before it: unions, functions that move rows, large reads, no keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.app import App
from penstock.engine.run import compiled
from penstock.flow.settings import AppSettings
from penstock.flow.windows import tumbling
from penstock.testing import Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import EVENTS, ITEMS, Play, Script

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS = "count(*) AS n, sum(v) AS s"
FIRSTS = """SELECT k, v FROM events QUALIFY row_number() OVER (PARTITION BY k ORDER BY us, partition, "offset") = 1"""
ANSWERS = (
    Answer("empty", "SELECT k, v FROM events WHERE false", filtered="true"),
    Answer("counted_empty", "SELECT k, count(*) AS n FROM events WHERE false GROUP BY k", filtered="true"),
    Answer("spread", f"SELECT k, {COUNTS} FROM events GROUP BY k"),
    Answer("gathered", f"SELECT k, {COUNTS} FROM events GROUP BY k"),
    Answer("keyed", f"SELECT k, {COUNTS} FROM events GROUP BY k"),
    Answer("chosen", "SELECT k, sum(v + 1) AS s FROM events GROUP BY k"),
    Answer("constant", f"SELECT 'x' AS c, k, k AS again, {COUNTS} FROM events GROUP BY k"),
    Answer("mixed", f"SELECT k, {COUNTS} FROM ({FIRSTS} UNION ALL SELECT k, v FROM events) GROUP BY k", late=None),
    Answer("plain", f"{FIRSTS} UNION ALL SELECT k, v FROM events", late=None),
    Answer("whole", f"SELECT {COUNTS} FROM events HAVING count(*) > 0"),
    Answer("whole_values", "SELECT quantile_cont(v, 0.5) AS middle FROM events HAVING count(*) > 0"),
    Answer(
        "whole_best", "SELECT v, row_number() OVER (ORDER BY v DESC NULLS LAST) AS rank FROM events QUALIFY rank <= 3"
    ),
    Answer(
        "minutes",
        "SELECT floored(us, 60000000, 0) AS window_start, count(*) AS n FROM events GROUP BY 1",
        shown="SELECT window_start, n FROM minutes",
    ),
    Answer("items_whole", "SELECT count(*) AS n, max(v) AS m FROM items HAVING count(*) > 0", of_table=True),
)


def in_three(rows: DataFrame) -> DataFrame:
    return rows.repartition(3)


def in_one(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1)


def in_five_by_key(rows: DataFrame) -> DataFrame:
    return rows.repartition(5, "k")


def app_of(partitions: int) -> App:
    app = App("partitions", settings=AppSettings(state_partitions=partitions))
    events = app.topic("events", schema=EVENTS, key="id", time="happened", lateness="20 seconds", partitions=3)
    items = app.table("items", schema=ITEMS, key="id")
    sums = {"n": "count(*)", "s": "sum(v)"}
    app.view("empty", events.where("1 = 0").select("k", "v"))
    app.view("counted_empty", events.where("1 = 0").group_by("k").agg(n="count(*)"))
    app.view("spread", events.map(in_three).group_by("k").agg(**sums))
    app.view("gathered", events.map(in_one).group_by("k").agg(**sums))
    app.view("keyed", events.map(in_five_by_key).group_by("k").agg(**sums))
    chosen = events.select("id", "k", w="v + 1", unused="price * 2").where("k is null or k is not null")
    app.view("chosen", chosen.group_by("k").agg(s="sum(w)"))
    app.view("constant", events.group_by("k", c="'x'", again="k").agg(**sums))
    firsts = events.distinct("k").select("k", "v")
    some = events.map(in_three).select("k", "v")
    app.view("mixed", some.union(firsts).group_by("k").agg(**sums))
    app.view("plain", some.union(firsts))
    app.view("whole", events.group_by().agg(**sums))
    app.view("whole_values", events.group_by().agg(middle="percentile(v, 0.5)"))
    app.view("whole_best", events.select("v").top(3, by="v desc"))
    app.view("minutes", events.window(tumbling("1 minute"), keep="2 hours").group_by().agg(n="count(*)"))
    app.view("items_whole", items.group_by().agg(n="count(*)", m="max(v)"))
    return app


@pytest.mark.parametrize(("partitions", "large"), [(1, False), (3, False), (2, True)])
def test_rows_find_the_state_of_their_key(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, partitions: int, large: bool
) -> None:
    if large:
        monkeypatch.setattr(compiled, "SMALL_ROWS", 3)
    with Rig(app_of(partitions), spark=spark) as rig:
        play = Play(rig)
        play.all(Script(seed=4, least=3, most=3))
        check(play, ANSWERS)
