"""Joins of streams and tables whose rows come, change and go, against DuckDB over the rows that are left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from penstock.app import App
from penstock.testing import Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import SECOND, Play, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = "SELECT id AS item, k, v AS w FROM items"
EVENT = "SELECT id, k, v FROM events"
COUNTS = "SELECT k, count(*) AS n FROM events GROUP BY k"
OUTER = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}


def sql_of(how: str, left: str, right: str) -> str:
    if how in OUTER:
        return f"SELECT * FROM ({left}) a {OUTER[how]} ({right}) b USING (k)"
    return f"SELECT * FROM ({left}) a WHERE {'NOT ' * (how == 'anti')}EXISTS (FROM ({right}) b WHERE b.k = a.k)"


KINDS = (*OUTER, "semi", "anti")
ANSWERS = (
    *(Answer(f"{how}_tables", sql_of(how, COUNTS, ITEM), late=None) for how in KINDS),
    *(Answer(f"{how}_mixed", sql_of(how, EVENT, ITEM), late=None) for how in KINDS),
    Answer("inner_streams", "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.v = b.v + 1", late=None),
    Answer(
        "with_nulls",
        f"SELECT a.k, item, w, n FROM ({ITEM}) a JOIN ({COUNTS}) b ON a.k IS NOT DISTINCT FROM b.k",
        late=None,
    ),
    Answer(
        "two_columns",
        "SELECT a.id, b.id AS item FROM events a JOIN items b ON a.k = b.k AND a.v = b.v",
        late=None,
    ),
    Answer(
        "best_of_joined",
        """SELECT k, item, n, row_number() OVER (PARTITION BY k ORDER BY item) AS rank
        FROM (SELECT k, item, n FROM items_ JOIN counts USING (k)) QUALIFY rank <= 2""".replace(
            "items_", f"({ITEM})"
        ).replace("counts", f"({COUNTS}) c"),
        late=None,
    ),
    Answer(
        "sums_of_joined",
        f"SELECT w, sum(n) AS total FROM (SELECT w, n FROM ({ITEM}) a LEFT JOIN ({COUNTS}) b USING (k)) GROUP BY w",
        late=None,
    ),
)


def app_of() -> App:
    app, events, items = declared()
    some, things = events.select("id", "k", "v"), items.select(item="id", k="k", w="v")
    counts = events.group_by("k").agg(n="count(*)")
    for how in KINDS:
        app.view(f"{how}_tables", counts.join(things, on="k", how=how))
        app.view(f"{how}_mixed", some.join(things, on="k", how=how))
    earlier = events.select(other="id", before="v")
    streams = events.select("id", v="v - 1").join(earlier, on={"v": "before"}, within="forever")
    app.view("inner_streams", streams.select("id", "other"))
    app.view("with_nulls", things.join(counts, on="k", nulls_match=True))
    pairs = some.join(items.select(item="id", k="k", v="v"), on=["k", "v"])
    app.view("two_columns", pairs.select("id", "item"))
    app.view("best_of_joined", things.join(counts, on="k").select("k", "item", "n").top(2, by="item", per=["k"]))
    app.view("sums_of_joined", things.join(counts, on="k", how="left").group_by("w").agg(total="sum(n)"))
    return app


@examples(4)
@given(scripts())
def test_joins_equal_the_query_over_the_rows_that_are_left(spark: SparkSession, script: Script) -> None:
    with Rig(app_of(), spark=spark) as rig:
        play = Play(rig)
        play.all(script)
        check(play, ANSWERS)


# -- near in time -----------------------------------------------------------------------------------------------------

KEEP = 600 * SECOND
SEARCHES = f"SELECT id, k, us FROM events WHERE v >= 0 AND us + {60 * SECOND + KEEP} >= before"
CLICKS = f"SELECT id AS click, k, us FROM events WHERE v < 4 AND us + {10 * SECOND + KEEP} >= before"
NEAR = f"b.k = a.k AND b.us - a.us BETWEEN {-10 * SECOND} AND {60 * SECOND}"


def near(how: str) -> str:
    if how in OUTER:
        key = {"right": "b.k", "full": "coalesce(a.k, b.k)"}.get(how, "a.k")
        return f"SELECT {key} AS k, id, click FROM ({SEARCHES}) a {OUTER[how]} ({CLICKS}) b ON {NEAR}"
    exists = f"{'NOT ' * (how == 'anti')}EXISTS (FROM ({CLICKS}) b WHERE {NEAR})"
    return f"SELECT k, id FROM ({SEARCHES}) a WHERE {exists}"


NEAR_ANSWERS = tuple(Answer(f"{how}_near", near(how), late=None) for how in KINDS)


def near_app() -> App:
    app, events, _ = declared()
    searches = events.where("v >= 0").select("id", "k", "happened")
    clicks = events.where("v < 4").select(click="id", k="k", clicked="happened")
    for how in KINDS:
        joined = searches.join(clicks, on="k", how=how, within="1 minute", before="10 seconds", keep="10 minutes")
        app.view(f"{how}_near", joined.select("k", "id", *(["click"] if how in OUTER else [])))
    return app


@examples(4)
@given(scripts())
def test_joins_near_in_time_equal_the_query_over_all_events_in_time(spark: SparkSession, script: Script) -> None:
    with Rig(near_app(), spark=spark) as rig:
        play = Play(rig)
        play.all(script)
        check(play, NEAR_ANSWERS)
