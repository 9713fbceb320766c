"""Views on views: windows of windows, several readers of one node, aggregates of rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app import App
from penstock.flow.settings import AppSettings
from penstock.flow.windows import hopping, session, sliding, tumbling
from penstock.testing import Crash, Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import EVENTS, SECOND, Play, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60 * SECOND
_MINUTES = f"SELECT k, floored(us, {MINUTE}, 0) AS m, count(*) AS n, sum(v) AS s FROM events GROUP BY 1, 2"
_FIRSTS = """SELECT * FROM events
    QUALIFY row_number() OVER (PARTITION BY k, v ORDER BY us, partition, "offset") = 1"""
_VISITS = f"""SELECT k, min(us) AS began, max(us) + {MINUTE} AS ended, count(*) AS n FROM (
    SELECT *, sum(begins::INT) OVER (PARTITION BY k ORDER BY us) AS number FROM (
        SELECT *, coalesce(us - lag(us) OVER (PARTITION BY k ORDER BY us) >= {MINUTE}, true) AS begins FROM events))
    GROUP BY k, number"""
ANSWERS = (
    Answer("minutes", f"SELECT k, m AS window_start, m + {MINUTE} AS window_end, n, s FROM ({_MINUTES})"),
    Answer(
        "tens",
        f"""SELECT k, floored(m, {10 * MINUTE}, 0) AS window_start, max(n) AS most, sum(s) AS s, count(*) AS minutes
        FROM ({_MINUTES}) GROUP BY 1, 2""",
        shown="SELECT k, window_start, most, s, minutes FROM tens",
    ),
    Answer("busy", f"SELECT k, max(n) AS n, count(*) AS minutes FROM ({_MINUTES}) WHERE n > 1 GROUP BY k"),
    Answer("best", f"SELECT k, n, m AS window_start FROM ({_MINUTES}) QUALIFY rank() OVER (ORDER BY n DESC) <= 2"),
    Answer(
        "visits",
        f"SELECT floored(ended - 1, {10 * MINUTE}, 0) AS window_start, count(*) AS visits, max(n) AS most "
        f"FROM ({_VISITS}) GROUP BY 1",
        shown="SELECT window_start, visits, most FROM visits",
    ),
    Answer(
        "first_minutes",
        f"SELECT floored(us, {MINUTE}, 0) AS window_start, count(*) AS n, max(v) AS m FROM ({_FIRSTS}) GROUP BY 1",
        shown="SELECT window_start, n, m FROM first_minutes",
    ),
    Answer("last_first", f"SELECT k, max(us) AS happened FROM ({_FIRSTS}) GROUP BY k"),
)


def app_of(max_rows: int) -> App:
    app, events, _ = declared(max_rows=max_rows)
    minutes = events.window(tumbling("1 minute"), keep="1 day").group_by("k").agg(n="count(*)", s="sum(v)")
    app.view("minutes", minutes)
    tens = minutes.window(tumbling("10 minutes"), keep="1 day").group_by("k")
    app.view("tens", tens.agg(most="max(n)", s="sum(s)", minutes="count(*)"))
    app.view("busy", minutes.where("n > 1").group_by("k").agg(n="max(n)", minutes="count(*)"))
    app.view("best", minutes.top(2, by="n desc", ties="keep").select("k", "n", "window_start"))
    visits = events.window(session("1 minute"), emit="changes", keep="1 day").group_by("k").agg(n="count(*)")
    visits = visits.window(tumbling("10 minutes"), keep="1 day").group_by().agg(visits="count(*)", most="max(n)")
    app.view("visits", visits)
    firsts = events.distinct("k", "v")
    app.view(
        "first_minutes",
        firsts.window(tumbling("1 minute"), keep="1 day").group_by().agg(n="count(*)", m="max(v)"),
    )
    app.view("last_first", firsts.select("k", "happened").latest("k"))
    return app


@examples(2)
@given(script=scripts(), max_rows=st.sampled_from([13, 1_000_000]))
def test_views_on_views_equal_the_query_over_all_events(spark: SparkSession, script: Script, max_rows: int) -> None:
    with Rig(app_of(max_rows), spark=spark) as rig:
        play = Play(rig)
        play.all(script)
        check(play, ANSWERS)


TAKEN_BACK = (
    Answer(
        "first_hops",
        f"""SELECT m AS window_start, count(*) AS n, sum(v) AS s, count(DISTINCT k) AS d FROM (
            SELECT *, floored(us, {MINUTE}, 0) - {MINUTE} * number AS m
            FROM ({_FIRSTS}), range(3) AS numbers(number)) GROUP BY 1""",
        shown="SELECT window_start, n, s, d FROM first_hops",
    ),
    Answer(
        "first_slid",
        f"""SELECT m.k, m.us AS window_end, count(*) AS n, sum(e.v) AS s
        FROM (SELECT DISTINCT k, us FROM ({_FIRSTS})) AS m JOIN ({_FIRSTS}) AS e
          ON m.k IS NOT DISTINCT FROM e.k AND e.us > m.us - {MINUTE} AND e.us <= m.us GROUP BY 1, 2""",
        shown="SELECT k, window_end, n, s FROM first_slid",
    ),
    Answer(
        "first_visits",
        _VISITS.replace("FROM events", f"FROM ({_FIRSTS})"),
        shown="SELECT k, window_start AS began, window_end AS ended, n FROM first_visits",
    ),
    Answer(
        "first_newest",
        f"""SELECT k, v FROM ({_FIRSTS})
        QUALIFY row_number() OVER (PARTITION BY k ORDER BY us DESC, v DESC NULLS LAST) = 1""",
    ),
)


def taken_back_app(max_rows: int) -> App:
    app, events, _ = declared(max_rows=max_rows)
    firsts = events.distinct("k", "v")
    hops = firsts.window(hopping("3 minutes", "1 minute"), keep="1 day").group_by()
    app.view("first_hops", hops.agg(n="count(*)", s="sum(v)", d="count(distinct k)"))
    slid = firsts.window(sliding("1 minute"), keep="1 day").group_by("k")
    app.view("first_slid", slid.agg(n="count(*)", s="sum(v)"))
    visits = firsts.window(session("1 minute"), emit="changes", keep="1 day").group_by("k")
    app.view("first_visits", visits.agg(n="count(*)"))
    best = firsts.top(1, by="happened desc, v desc", per=["k"])
    app.view("first_newest", best.select("k", "v"))
    return app


@examples(2)
@given(script=scripts(), max_rows=st.sampled_from([13, 1_000_000]))
def test_windows_over_rows_that_are_taken_back_equal_the_query_over_all_events(
    spark: SparkSession, script: Script, max_rows: int
) -> None:
    with Rig(taken_back_app(max_rows), spark=spark) as rig:
        play = Play(rig)
        play.all(script)
        check(play, TAKEN_BACK)


def test_a_node_that_several_views_read_is_worked_out_once(spark: SparkSession) -> None:
    """Its state would be the same if it were worked out for each of them; only the reports of its tasks tell."""
    app = App("once", settings=AppSettings(state_partitions=2))
    events = app.topic("events", schema=EVENTS, key="id", time="happened")
    counted = events.group_by("k").agg(n="count(*)")
    for number in range(3):
        app.view(f"above_{number}", counted.where(f"n > {number}").select("k"))
    with Rig(app, spark=spark) as rig:
        rig.append("events", [{"id": n, "k": "ab"[n % 2], "happened": rig.now} for n in range(5)])
        rig.crash_at("run")
        with pytest.raises(Crash):
            rig.step()
        reports = [path.read_text() for path in rig.directory.glob("staged/**/*.report.json")]
        rig.restart()
        rig.run()
        assert rig.view("above_2") == [{"k": "a"}]
    assert len([one for one in reports if '"state"' in one]) == 2
    assert len([one for one in reports if '"source"' in one]) == 2
