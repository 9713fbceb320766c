"""Views of tables, whose rows are replaced and deleted, equal the same queries by DuckDB over what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.app import App
from penstock.testing import Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import Play, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of_items(view: str, query: str, shown: str | None = None) -> Answer:
    return Answer(view, query, shown=shown, of_table=True)


ANSWERS = (
    of_items("kept", "SELECT id, k, v + 1 AS w FROM items WHERE v > 1"),
    of_items("whole", "SELECT count(*) AS n, sum(v) AS s, max(v) AS m FROM items HAVING count(*) > 0"),
    of_items(
        "added",
        """SELECT k, count(*) AS n, count(v) AS c, sum(v) AS s, avg(v) AS a, sum(amount) AS total,
        round(avg(amount), 6) AS mean, count(DISTINCT v) AS d, count(DISTINCT v) FILTER (WHERE v > 0) AS positive,
        sum(amount) FILTER (WHERE v > 0) AS some, count(*) FILTER (WHERE v > 2) AS big FROM items GROUP BY k""",
    ),
    of_items(
        "evaluated",
        """SELECT k, min(v) AS least, max(price) AS high, sum(price) AS paid, avg(price) AS mean,
        quantile_cont(v, 0.5) AS middle, stddev_samp(v) AS spread, count(DISTINCT v) AS d,
        coalesce(list(v) FILTER (WHERE v IS NOT NULL), []) AS all_v,
        coalesce(list(DISTINCT v) FILTER (WHERE v IS NOT NULL), []) AS each_v, sum(v) FILTER (WHERE price > 0) AS some
        FROM items GROUP BY k""",
    ),
    of_items(
        "weighed",
        """SELECT k, quantile_cont(v, 0.5) AS middle, median(v) AS half,
        quantile_cont(v, 0.25) FILTER (WHERE v > 0) AS low, count(*) AS n,
        count(v) FILTER (WHERE price > 0) AS c, sum(v) AS s, max(price) AS high, count(DISTINCT v) AS d,
        coalesce(list(DISTINCT v) FILTER (WHERE v IS NOT NULL), []) AS each_v FROM items GROUP BY k""",
    ),
    of_items(
        "best",
        """SELECT id, k, v, amount, price, row_number() OVER (
            PARTITION BY k ORDER BY v DESC NULLS LAST, id) AS rank FROM items QUALIFY rank <= 2""",
    ),
    of_items("tied", "SELECT v, rank() OVER (ORDER BY v NULLS FIRST) AS rank FROM items QUALIFY rank <= 2"),
    of_items(
        "moved",
        "SELECT id, k, v, count(*) AS n FROM items GROUP BY ALL",
        "SELECT * FROM moved WHERE n <> 0",
    ),
    of_items(
        "last_changes",
        "SELECT id, k, v FROM items",
        "SELECT id, k, v FROM last_changes WHERE change = 'added'",
    ),
    of_items(
        "sizes",
        """SELECT n, count(*) AS groups, max(s) AS most
        FROM (SELECT k, count(*) AS n, sum(v) AS s FROM items GROUP BY k) GROUP BY n""",
    ),
    Answer(
        "united",
        """SELECT k, count(*) AS n, sum(x) AS s FROM (
            SELECT k, v AS x FROM items UNION ALL SELECT k, n * 100 AS x FROM (
                SELECT k, count(*) AS n FROM events GROUP BY k)) GROUP BY k""",
        late=None,
    ),
)


def app_of(max_rows: int) -> App:
    app, events, items = declared(max_rows=max_rows)
    app.view("kept", items.where("v > 1").select("id", "k", w="v + 1"))
    app.view("whole", items.group_by().agg(n="count(*)", s="sum(v)", m="max(v)"))
    added = {
        "n": "count(*)",
        "c": "count(v)",
        "s": "sum(v)",
        "a": "avg(v)",
        "total": "sum(amount)",
        "mean": "avg(amount)",
        "d": "count(distinct v)",
        "positive": "count(distinct v) filter (where v > 0)",
        "some": "sum(amount) filter (where v > 0)",
        "big": "count_if(v > 2)",
    }
    app.view("added", items.group_by("k").agg(**added))
    evaluated = {
        "least": "min(v)",
        "high": "max(price)",
        "paid": "sum(price)",
        "mean": "avg(price)",
        "middle": "percentile(v, 0.5)",
        "spread": "stddev(v)",
        "d": "count(distinct v)",
        "all_v": "collect_list(v)",
        "each_v": "collect_set(v)",
        "some": "sum(v) filter (where price > 0)",
    }
    app.view("evaluated", items.group_by("k").agg(**evaluated))
    weighed = {
        "middle": "percentile(v, 0.5)",
        "half": "median(v)",
        "low": "percentile(v, 0.25) filter (where v > 0)",
        "n": "count(*)",
        "c": "count(v) filter (where price > 0)",
        "s": "sum(v)",
        "high": "max(price)",
        "d": "count(distinct v)",
        "each_v": "collect_set(v)",
    }
    app.view("weighed", items.group_by("k").agg(**weighed))
    app.view("best", items.top(2, by="v desc, id", per=["k"]))
    app.view("tied", items.select("v").top(2, by="v", ties="keep"))
    signed = "sum(case when change = 'added' then 1 else -1 end)"
    app.view("moved", items.select("id", "k", "v").changes().group_by("id", "k", "v").agg(n=signed))
    app.view("last_changes", items.changes().latest("id"))
    groups = items.group_by("k").agg(n="count(*)", s="sum(v)")
    app.view("sizes", groups.group_by("n").agg(groups="count(*)", most="max(s)"))
    counted = events.group_by("k").agg(n="count(*)").select("k", x="n * 100")
    app.view("united", items.select("k", x="v").union(counted).group_by("k").agg(n="count(*)", s="sum(x)"))
    return app


@examples(2)
@given(script=scripts(), max_rows=st.sampled_from([11, 1_000_000]))
def test_views_of_tables_equal_the_query_over_the_rows_that_are_left(
    spark: SparkSession, script: Script, max_rows: int
) -> None:
    with Rig(app_of(max_rows), spark=spark) as rig:
        played = Play(rig)
        played.all(script)
        check(played, ANSWERS)
