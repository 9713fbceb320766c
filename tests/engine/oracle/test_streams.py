"""Views of streams without windows equal the same queries by DuckDB, whatever the cuts and crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.app import App
from penstock.testing import Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import Play, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def doubled(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("twice", F.col("v") * 2)


ROWS = (
    Answer("chosen", "SELECT id, v + 1 AS w FROM events WHERE v > 1", filtered="(v > 1) IS NOT TRUE"),
    Answer(
        "changed",
        """SELECT id AS number, k, -v AS v, price, happened, coalesce(k, '?') || '!' AS mark
        FROM events WHERE k IS NOT NULL""",
        filtered="k IS NULL",
    ),
    Answer("mapped", "SELECT id, v * 2 AS twice FROM events"),
    Answer(
        "united",
        "SELECT id, v AS x FROM events WHERE v > 2 UNION ALL SELECT id, -v AS x FROM events WHERE v <= 3",
        late=None,
    ),
    Answer(
        "firsts",
        """SELECT id, k, v, amount, price, happened FROM events
        QUALIFY row_number() OVER (PARTITION BY k, v ORDER BY us, partition, "offset") = 1""",
    ),
    Answer(
        "bursts",
        """SELECT id, k FROM events WHERE us + 3600000000 > before
        QUALIFY coalesce(us - lag(us) OVER (PARTITION BY k ORDER BY us, partition, "offset") >= 60000000, true)""",
        late="us + 3600000000 <= before",
    ),
    Answer(
        "newest",
        """SELECT id, k, v, amount, price, happened FROM events
        QUALIFY row_number() OVER (PARTITION BY k ORDER BY us DESC, "offset" DESC, partition DESC) = 1""",
    ),
    Answer(
        "best",
        """SELECT id, k, v, amount, price, happened, row_number() OVER (
            PARTITION BY k ORDER BY price DESC NULLS LAST, v NULLS FIRST, id) AS rank FROM events QUALIFY rank <= 3""",
    ),
    Answer(
        "tied",
        """SELECT k, v, price, rank() OVER (PARTITION BY k ORDER BY price DESC NULLS LAST) AS rank
        FROM events QUALIFY rank <= 2""",
    ),
)


def rows_app(max_rows: int) -> App:
    app, events, _ = declared(max_rows=max_rows)
    app.view("chosen", events.where("v > 1").select("id", w="v + 1"))
    changed = events.where("k is not null").with_columns(v="-v", mark="coalesce(k, '?') || '!'")
    app.view("changed", changed.drop("amount").rename(number="id"))
    app.view("mapped", events.map(doubled).select("id", "twice"))
    app.view("united", events.where("v > 2").select("id", x="v").union(events.where("v <= 3").select("id", x="-v")))
    app.view("firsts", events.distinct("k", "v"))
    app.view("bursts", events.distinct("k", within="1 minute").select("id", "k"))
    app.view("newest", events.latest("k"))
    app.view("best", events.top(3, by="price desc, v, id", per=["k"]))
    app.view("tied", events.select("k", "v", "price").top(2, by="price desc", per=["k"], ties="keep"))
    return app


AGGREGATES = (
    Answer("whole", "SELECT count(*) AS n, sum(v) AS s, max(k) AS m FROM events HAVING count(*) > 0"),
    Answer(
        "added",
        """SELECT k, count(*) AS n, count(v) AS c, sum(v) AS s, avg(v) AS a, min(v) AS least, max(amount) AS most,
        sum(amount) AS total, round(avg(amount), 6) AS mean, min(price) AS low, max(price) AS high, sum(price) AS paid,
        count(DISTINCT v) AS d, count(DISTINCT v) FILTER (WHERE v > 0) AS positive,
        sum(v) FILTER (WHERE price > 0) AS some, count(*) FILTER (WHERE v > 2) AS big, max(happened) AS newest,
        min(k) AS same, count(DISTINCT amount) AS about FROM events GROUP BY k""",
    ),
    Answer(
        "computed",
        """SELECT v % 2 AS odd, k IS NULL AS nameless, happened::DATE AS day,
        sum(amount) / count(*) AS share, 1 + max(v) - min(v) AS range,
        CASE WHEN count(*) > 3 THEN 'many' ELSE coalesce(min(k), '?') || count(*) END AS text
        FROM events GROUP BY 1, 2, 3""",
    ),
    Answer(
        "by_price",
        "SELECT price + 0.0 AS price, count(*) AS n, sum(v) AS s FROM events GROUP BY 1",
        shown="SELECT nullif(price, 'NaN') AS price, n, s FROM by_price",
    ),
    Answer(
        "evaluated",
        """SELECT k, quantile_cont(v, 0.5) AS middle, stddev_samp(v) AS spread,
        coalesce(list(v) FILTER (WHERE v IS NOT NULL), []) AS all_v,
        coalesce(list(DISTINCT v) FILTER (WHERE v IS NOT NULL), []) AS each_v, sum(DISTINCT v) AS s,
        bit_xor(v) FILTER (WHERE v IS NOT NULL) AS x, count(*) AS n,
        string_agg(k, ',' ORDER BY k) FILTER (WHERE v > 1) AS names, count(DISTINCT v) AS d, count(DISTINCT amount) AS e
        FROM events GROUP BY k""",
    ),
    Answer(
        "weighed",
        """SELECT k, quantile_cont(v, 0.5) AS middle, median(v) AS half,
        quantile_cont(v, 0.25) FILTER (WHERE v > 0) AS low, count(*) AS n,
        count(v) FILTER (WHERE price > 0) AS c, sum(v) AS s, max(price) AS high, count(DISTINCT v) AS d,
        coalesce(list(DISTINCT v) FILTER (WHERE v IS NOT NULL), []) AS each_v FROM events GROUP BY k""",
    ),
    Answer(
        "wide",
        """SELECT k, sum(amount) AS total, round(avg(amount), 6) AS mean, round(avg(amount), 14) AS fine
        FROM events GROUP BY k""",
    ),
    Answer(
        "estimated",
        "SELECT k, count(DISTINCT v) AS sketched FROM events GROUP BY k",
    ),
)


def aggregates_app(max_rows: int) -> App:
    app, events, _ = declared(max_rows=max_rows)
    app.view("whole", events.group_by().agg(n="count(*)", s="sum(v)", m="max(k)"))
    added: dict[str, str] = {
        "n": "count(*)",
        "c": "count(v)",
        "s": "sum(v)",
        "a": "avg(v)",
        "least": "min(v)",
        "most": "max(amount)",
        "total": "sum(amount)",
        "mean": "avg(amount)",
        "low": "min(price)",
        "high": "max(price)",
        "paid": "sum(price)",
        "d": "count(distinct v)",
        "positive": "count(distinct v) filter (where v > 0)",
        "some": "sum(v) filter (where price > 0)",
        "big": "count_if(v > 2)",
        "newest": "max(happened)",
        "same": "min(k)",
        "about": "approx_count_distinct(amount, 0.01)",
    }
    app.view("added", events.group_by("k").agg(**added))
    computed = events.group_by(odd="v % 2", nameless="k is null", day="date(happened)")
    text = "case when count(*) > 3 then 'many' else coalesce(min(k), '?') || count(*) end"
    app.view("computed", computed.agg(share="sum(amount) / count(*)", range="1 + max(v) - min(v)", text=text))
    app.view("by_price", events.group_by("price").agg(n="count(*)", s="sum(v)"))
    evaluated: dict[str, str] = {
        "middle": "percentile(v, 0.5)",
        "spread": "stddev(v)",
        "all_v": "collect_list(v)",
        "each_v": "collect_set(v)",
        "s": "sum(distinct v)",
        "x": "bit_xor(v)",
        "n": "count(*)",
        "names": "listagg(k, ',') within group (order by k) filter (where v > 1)",
        "d": "count(distinct v)",
        "e": "count(distinct amount)",
    }
    app.view("evaluated", events.group_by("k").agg(**evaluated))
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
    app.view("weighed", events.group_by("k").agg(**weighed))
    wide = "cast(amount as decimal(38,10))"
    app.view(
        "wide",
        events.group_by("k").agg(total=f"sum({wide})", mean="avg(cast(amount as decimal(30,2)))", fine=f"avg({wide})"),
    )
    sketched = "hll_sketch_estimate(hll_sketch_agg(v)) * min(1)"
    app.view("estimated", events.group_by("k").agg(sketched=sketched))
    return app


def play(app: App, script: Script, answers: tuple[Answer, ...], spark: SparkSession) -> None:
    with Rig(app, spark=spark) as rig:
        played = Play(rig)
        played.all(script)
        check(played, answers)


@examples(2)
@given(script=scripts(), max_rows=st.sampled_from([13, 1_000_000]))
def test_rows_and_tables_of_streams_equal_the_query_over_all_events(
    spark: SparkSession, script: Script, max_rows: int
) -> None:
    play(rows_app(max_rows), script, ROWS, spark)


@examples(2)
@given(script=scripts(), max_rows=st.sampled_from([13, 1_000_000]))
def test_aggregates_of_streams_equal_the_query_over_all_events(
    spark: SparkSession, script: Script, max_rows: int
) -> None:
    play(aggregates_app(max_rows), script, AGGREGATES, spark)
