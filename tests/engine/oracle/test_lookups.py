"""Events that look up rows of a table, against DuckDB over all events and all versions of the table's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from penstock.app import App
from penstock.testing import Rig
from tests.engine.oracle.answers import Answer, check
from tests.engine.oracle.play import SECOND, Play, Script, declared, examples, scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP = 600 * SECOND
IN_TIME = f"SELECT * FROM events WHERE us + {KEEP} >= before"
VERSIONS = f"""
    SELECT id AS item, v AS w, amount, "offset", before, epoch, gone,
        coalesce(epoch_us(since), CASE WHEN gone THEN stored END, {-(2**62)}) AS held
    FROM items_log
"""


def as_of(how: str, moment: str, *, versions: str = VERSIONS, hidden: str = "false") -> str:
    """For each event the last version up to its moment, of those that were known before it was too old."""
    return f"""
        WITH versions AS ({versions}), found AS (
            SELECT e.id, e.v, x.w, x.item IS NULL OR x.gone OR ({hidden}) AS nothing
            FROM ({IN_TIME}) e LEFT JOIN versions x
                ON x.item = e.v AND x.held <= {moment} AND e.us + {KEEP} >= x.before
            QUALIFY row_number() OVER (PARTITION BY e.id ORDER BY x.held DESC, x."offset" DESC) = 1
        )
        SELECT id, v, CASE WHEN NOT nothing THEN w END AS w FROM found {"WHERE NOT nothing" if how == "inner" else ""}
    """


NEWEST = f"""
    WITH versions AS ({VERSIONS}), found AS (
        SELECT e.id, e.v, x.w, x.item IS NULL OR x.gone AS nothing
        FROM events e LEFT JOIN versions x ON x.item = e.v AND x.epoch <= e.epoch
        QUALIFY row_number() OVER (PARTITION BY e.id ORDER BY x."offset" DESC) = 1
    )
    SELECT id, v, CASE WHEN NOT nothing THEN w END AS w FROM found
"""
ANSWERS = (
    Answer("inner_then", as_of("inner", "e.us"), late=None),
    Answer("left_then", as_of("left", "e.us"), late=None),
    Answer("earlier", as_of("left", f"e.us - {45 * SECOND}"), late=None),
    Answer("few", as_of("left", "e.us", hidden="coalesce(x.w, 0) <= 1"), late=None),
    Answer("summed", f"SELECT w, count(*) AS n, sum(v) AS total FROM ({as_of('left', 'e.us')}) GROUP BY w", late=None),
    Answer("newest", NEWEST, late=None),
)


def app_of() -> App:
    app, events, items = declared(versions=True)
    some, things = events.select("id", "v", "happened"), items.select(item="id", w="v", since="since")
    on = {"v": "item"}
    then = some.join(things, on=on, as_of="happened", how="left", keep="10 minutes")
    app.view("inner_then", some.join(things, on=on, as_of="happened", keep="10 minutes").select("id", "v", "w"))
    app.view("left_then", then.select("id", "v", "w"))
    before = some.with_columns(asked="happened - INTERVAL 45 SECONDS")
    app.view("earlier", before.join(things, on=on, as_of="asked", how="left", keep="10 minutes").select("id", "v", "w"))
    large = things.where("w > 1")
    app.view("few", some.join(large, on=on, as_of="happened", how="left", keep="10 minutes").select("id", "v", "w"))
    app.view("summed", then.group_by("w").agg(n="count(*)", total="sum(v)"))
    app.view("newest", some.join(things, on=on, as_of="now", how="left").select("id", "v", "w"))
    return app


@examples(6)
@given(scripts(3, 6))
def test_what_events_find_equals_the_query_over_all_versions(spark: SparkSession, script: Script) -> None:
    with Rig(app_of(), spark=spark) as rig:
        play = Play(rig)
        play.all(script)
        check(play, ANSWERS)
