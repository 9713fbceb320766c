"""How the same input is cut into epochs, and where the app crashes, changes no view but for `revision`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given

from penstock.app import App
from penstock.flow.windows import hopping, session, sliding, tumbling
from penstock.testing import Rig
from tests.engine.oracle.play import Play, Round, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def app_of(max_rows: int) -> App:
    app, events, items = declared(max_rows=max_rows)
    values = {"n": "count(*)", "paid": "sum(amount)", "middle": "percentile(v, 0.5)", "d": "count(distinct v)"}
    app.view("groups", events.group_by("k").agg(**values))
    app.view("minutes", events.window(tumbling("1 minute"), keep="1 day").group_by("k").agg(**values))
    app.view("hops", events.window(hopping("3 minutes", "1 minute"), keep="1 day").group_by().agg(n="count(*)"))
    app.view("slid", events.window(sliding("1 minute"), keep="1 day").group_by("k").agg(n="count(*)"))
    app.view("visits", events.window(session("1 minute"), keep="1 day").group_by("k").agg(n="count(*)"))
    app.view("newest", events.latest("k"))
    app.view("ties", items.top(3, by="v", per=["k"]))
    return app


def views_after(spark: SparkSession, script: list[Round], max_rows: int) -> dict[str, list[dict[str, Any]]]:
    app = app_of(max_rows)
    with Rig(app, spark=spark) as rig:
        play = Play(rig)
        for one in script:
            play.one(one)
        rig.advance("1 day")
        while play.step():
            pass
        views = {view.name: rig.view(view.name) for view in app.plan.views}
    return {
        name: [{column: value for column, value in row.items() if column != "revision"} for row in rows]
        for name, rows in views.items()
    }


@examples(1)
@given(script=scripts(3, 4))
def test_cutting_the_same_input_differently_changes_no_view(spark: SparkSession, script: Script) -> None:
    rounds = script.rounds()
    at_once = [replace(one, epochs=0, crash=None) for one in rounds]
    # As text: a value that is not a number equals none.
    assert repr(views_after(spark, rounds, 17)) == repr(views_after(spark, at_once, 1_000_000))
