"""Windows equal the same queries by DuckDB over all events that were in time, and the books say which were not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app import App
from penstock.flow.windows import hopping, session, sliding, tumbling
from penstock.testing import Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import SECOND, Play, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
SUMS = "count(*) AS n, sum(v) AS s, max(price) AS high, count(DISTINCT v) AS d"
VALUES = "quantile_cont(v, 0.5) AS middle, coalesce(list(v) FILTER (WHERE v IS NOT NULL), []) AS all_v, count(*) AS n"


def fixed(
    view: str, columns: str, *, size: int, every: int, start: int = 0, keep: int = HOUR, group: str = "k"
) -> Answer:
    """Tumbling and hopping windows: an event counts in each that can still be corrected when it comes."""
    steps = -(-size // every)
    key = f"{group}, " if group else ""
    return Answer(
        view,
        f"""SELECT {key}w AS window_start, w + {size} AS window_end, {columns}
        FROM (SELECT *, floored(us, {every}, {start}) - {every} * number AS w
              FROM events, range({steps}) AS numbers(number))
        WHERE w + {size} > us AND w + {size} + {keep} > before GROUP BY {key}w""",
        late=f"floored(us, {every}, {start}) + {size} + {keep} <= before",
    )


def moving(view: str, columns: str, *, size: int, keep: int = HOUR) -> Answer:
    """Sliding windows: at each moment of a group the events of the last `size`."""
    return Answer(
        view,
        f"""WITH timely AS (SELECT * FROM events WHERE us + {keep} >= before)
        SELECT m.k, m.us - {size} AS window_start, m.us AS window_end, {columns}
        FROM (SELECT DISTINCT k, us FROM timely) AS m JOIN timely AS e
          ON m.k IS NOT DISTINCT FROM e.k AND e.us > m.us - {size} AND e.us <= m.us
        GROUP BY m.k, m.us""",
        late=f"us + {keep} < before",
    )


def sessions(view: str, columns: str, *, gap: int, keep: int) -> Answer:
    """Sessions: events of a group with less than the gap between one and the next."""
    timely = f"floored(us, {gap}, 0) + 2 * {gap} + {keep}"
    return Answer(
        view,
        f"""WITH steps AS (
            SELECT *, coalesce(us - lag(us) OVER (PARTITION BY k ORDER BY us) >= {gap}, true) AS begins
            FROM events WHERE {timely} > before),
        numbered AS (SELECT *, sum(begins::INT) OVER (PARTITION BY k ORDER BY us) AS number FROM steps)
        SELECT k, min(us) AS window_start, max(us) + {gap} AS window_end, {columns}
        FROM numbered GROUP BY k, number""",
        late=f"{timely} <= before",
    )


FIXED = (
    fixed("minutes", SUMS, size=MINUTE, every=MINUTE),
    fixed("shifted", SUMS, size=7 * MINUTE, every=7 * MINUTE, start=2 * MINUTE, keep=0),
    fixed("values_", VALUES, size=2 * MINUTE, every=2 * MINUTE, keep=0),
    fixed("hops", SUMS, size=5 * MINUTE, every=2 * MINUTE, keep=3 * MINUTE),
    fixed("hop_values", VALUES, size=4 * MINUTE, every=2 * MINUTE, keep=MINUTE),
    fixed("all_hops", "count(*) AS n", size=2 * MINUTE, every=MINUTE, keep=0, group=""),
)


def fixed_app(max_rows: int) -> App:
    app, events, _ = declared(max_rows=max_rows)
    sums = {"n": "count(*)", "s": "sum(v)", "high": "max(price)", "d": "count(distinct v)"}
    values = {"middle": "percentile(v, 0.5)", "all_v": "collect_list(v)", "n": "count(*)"}
    app.view("minutes", events.window(tumbling("1 minute")).group_by("k").agg(**sums))
    shifted = events.window(tumbling("7 minutes", offset="2 minutes"), emit="changes", late="drop")
    app.view("shifted", shifted.group_by("k").agg(**sums))
    app.view("values_", events.window(tumbling("2 minutes"), late="drop").group_by("k").agg(**values))
    hops = events.window(hopping("5 minutes", "2 minutes"), keep="3 minutes")
    app.view("hops", hops.group_by("k").agg(**sums))
    hops = events.window(hopping("4 minutes", "2 minutes"), emit="changes", keep="1 minute")
    app.view("hop_values", hops.group_by("k").agg(**values))
    app.view("all_hops", events.window(hopping("2 minutes", "1 minute"), late="drop").group_by().agg(n="count(*)"))
    return app


MOVING = (
    moving("slid", VALUES, size=90 * SECOND),
    moving("slid_now", "count(*) AS n, sum(v) AS s", size=MINUTE, keep=0),
    sessions("visits", "count(*) AS n, sum(v) AS s, max(price) AS high", gap=MINUTE, keep=24 * HOUR),
    sessions("visits_now", "count(*) AS n, min(v) AS least", gap=MINUTE, keep=24 * HOUR),
    sessions("visit_values", VALUES, gap=45 * SECOND, keep=24 * HOUR),
    sessions("visit_values_now", VALUES, gap=45 * SECOND, keep=24 * HOUR),
)


def moving_app(max_rows: int) -> App:
    app, events, _ = declared(max_rows=max_rows)
    values = {"middle": "percentile(v, 0.5)", "all_v": "collect_list(v)", "n": "count(*)"}
    app.view("slid", events.window(sliding("90 seconds")).group_by("k").agg(**values))
    slid = events.window(sliding("1 minute"), emit="changes", late="drop")
    app.view("slid_now", slid.group_by("k").agg(n="count(*)", s="sum(v)"))
    visits = events.window(session("1 minute"), keep="1 day").group_by("k")
    app.view("visits", visits.agg(n="count(*)", s="sum(v)", high="max(price)"))
    visits = events.window(session("1 minute"), emit="changes", keep="1 day").group_by("k")
    app.view("visits_now", visits.agg(n="count(*)", least="min(v)"))
    app.view("visit_values", events.window(session("45 seconds"), keep="1 day").group_by("k").agg(**values))
    visits = events.window(session("45 seconds"), emit="changes", keep="1 day").group_by("k")
    app.view("visit_values_now", visits.agg(**values))
    return app


def play(app: App, script: Script, answers: tuple[Answer, ...], spark: SparkSession) -> None:
    with Rig(app, spark=spark) as rig:
        played = Play(rig)
        played.all(script)
        check(played, answers)


@examples(2)
@given(script=scripts(least=3, most=5), max_rows=st.sampled_from([13, 1_000_000]))
def test_tumbling_and_hopping_windows_equal_the_query_over_all_events_in_time(
    spark: SparkSession, script: Script, max_rows: int
) -> None:
    play(fixed_app(max_rows), script, FIXED, spark)


@examples(2)
@given(script=scripts(least=3, most=5), max_rows=st.sampled_from([13, 1_000_000]))
def test_sliding_windows_and_sessions_equal_the_query_over_all_events_in_time(
    spark: SparkSession, script: Script, max_rows: int
) -> None:
    play(moving_app(max_rows), script, MOVING, spark)


@pytest.mark.parametrize("aggregate", ["count(*)", "cardinality(collect_list(id))"])
def test_a_session_that_an_event_joins_is_replaced_though_it_was_final(spark: SparkSession, aggregate: str) -> None:
    """Events are late by whole pieces of time: the second one of `a` is not, though its session has ended."""
    app, events, _ = declared()
    visits = events.window(session("1 minute"), late="drop").group_by("k").agg(n=aggregate)
    app.view("visits", visits.select("k", "window_start", "window_end", "n"))
    with Rig(app, spark=spark) as rig:
        for k, seconds in [("a", 0), ("b", 111), ("c", 111), ("d", 111), ("a", 59)]:
            rig.append("events", [{"id": 1, "k": k, "happened": rig.now + timedelta(seconds=seconds)}], producer="one")
            rig.run()
        assert rig.query("SELECT * FROM visits WHERE k = 'a'") == []  # it has not ended any more
        rig.advance("1 day")
        rig.run()
        rows = rig.query("SELECT * FROM visits WHERE k = 'a'")
        ends = rig.now - timedelta(days=1) + timedelta(seconds=119)
        assert [(row["n"], row["window_end"]) for row in rows] == [(2, ends)]
