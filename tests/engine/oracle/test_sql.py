"""Views that were declared in SQL, against DuckDB, which is asked nearly the same."""

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
# The same text for both.
SHARED = {
    "filtered_rows": "SELECT id, v * 2 AS doubled FROM events WHERE v > 2 OR k = 'a'",
    "grouped": "SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k HAVING count(*) > 3 AND max(v) > 4",
    "different": "SELECT DISTINCT k, v FROM items",
    "together": "SELECT id, k FROM events WHERE v < 3 UNION ALL SELECT id, upper(k) AS k FROM events WHERE v > 0",
    "stepwise": """
        WITH counted AS (SELECT k, count(*) AS n FROM events GROUP BY k)
        SELECT n, count(*) AS keys FROM (SELECT n FROM counted WHERE k IS NOT NULL) c GROUP BY n
    """,
    "joined": "SELECT e.id, i.id AS item FROM events e JOIN items i ON e.k = i.k AND e.v < i.v WHERE i.v > 0",
    "on_both": "SELECT e.id AS event, i.v FROM events e JOIN items i ON e.v = i.id AND e.k <> i.k",
    "with_items": "SELECT e.id, i.id AS item, i.k FROM events e LEFT JOIN items i ON e.k = i.k AND i.v > 1",
    "without_events": "SELECT e.id AS event, i.id FROM events e RIGHT JOIN items i ON e.v = i.id",
    "all_of_both": "SELECT e.id AS event, i.id FROM events e FULL JOIN items i ON e.v = i.id",
    "chained": """
        SELECT e.id, i.v, n FROM events e JOIN items i ON e.v = i.id
        JOIN (SELECT k, count(*) AS n FROM events GROUP BY k) c ON i.k = c.k
    """,
    "best": """
        SELECT k, id, v FROM (
            SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS place FROM items
        ) ranked WHERE place <= 2
    """,
}
WINDOW = f"""
    SELECT k, make_timestamp(floored(us, {60 * SECOND}, 0)) AS began, count(*) AS n FROM events
    WHERE floored(us, {60 * SECOND}, 0) + {60 * SECOND} + {KEEP} > before GROUP BY ALL
"""
OTHERS = {
    "semi_joined": (
        "SELECT id, k FROM events e LEFT SEMI JOIN items i ON e.k = i.k AND i.v > 1",
        "SELECT id, k FROM events e SEMI JOIN (FROM items WHERE v > 1) i USING (k)",
    ),
    "anti_joined": (
        "SELECT id, k FROM events e LEFT ANTI JOIN items i ON e.k = i.k",
        "SELECT id, k FROM events e ANTI JOIN items i USING (k)",
    ),
    "null_safe": (
        "SELECT e.id, i.id AS item FROM events e JOIN items i ON e.k <=> i.k",
        "SELECT e.id, i.id AS item FROM events e JOIN items i ON e.k IS NOT DISTINCT FROM i.k",
    ),
    "minutes": (
        """
        SELECT k, window.start AS began, count(*) AS n FROM events GROUP BY k, window(happened, '1 minute')
        EMIT FINAL LATE CORRECT KEEP '10 minutes'
        """,
        WINDOW,
    ),
    "near": (
        """
        SELECT a.id, b.id AS other FROM events a LEFT JOIN events b
            ON a.k = b.k AND b.happened BETWEEN a.happened - INTERVAL 10 SECONDS AND a.happened + INTERVAL 1 MINUTE
        KEEP '10 minutes'
        """,
        f"""
        SELECT a.id, b.id AS other
        FROM (FROM events WHERE us + {60 * SECOND + KEEP} >= before) a
        LEFT JOIN (FROM events WHERE us + {10 * SECOND + KEEP} >= before) b
            ON a.k = b.k AND b.us - a.us BETWEEN {-10 * SECOND} AND {60 * SECOND}
        """,
    ),
    "valid_then": (
        """
        SELECT e.id, i.v AS w FROM events e
        LEFT JOIN items FOR SYSTEM_TIME AS OF e.happened AS i ON e.v = i.id KEEP '10 minutes'
        """,
        f"""
        WITH versions AS (
            SELECT *, coalesce(epoch_us(since), stored) AS held FROM items_log
        ), found AS (
            SELECT e.id, x.v, x.id IS NULL OR x.gone AS nothing
            FROM (FROM events WHERE us + {KEEP} >= before) e LEFT JOIN versions x
                ON x.id = e.v AND x.held <= e.us AND e.us + {KEEP} >= x.before
            QUALIFY row_number() OVER (PARTITION BY e.id ORDER BY x.held DESC, x."offset" DESC) = 1
        )
        SELECT id, CASE WHEN NOT nothing THEN v END AS w FROM found
        """,
    ),
}
ANSWERS = (
    *(Answer(name, sql, late=None) for name, sql in SHARED.items()),
    *(Answer(name, duckdb, late=None) for name, (_, duckdb) in OTHERS.items()),
)


def app_of() -> App:
    app, _, _ = declared(versions=True)
    for name, sql in SHARED.items():
        app.sql(f"CREATE VIEW {name} AS {sql}")
    for name, (sql, _) in OTHERS.items():
        app.sql(f"CREATE VIEW {name} AS {sql}")
    return app


@examples(3)
@given(scripts())
def test_views_in_sql_equal_the_query(spark: SparkSession, script: Script) -> None:
    with Rig(app_of(), spark=spark) as rig:
        play = Play(rig)
        play.all(script)
        check(play, ANSWERS)
