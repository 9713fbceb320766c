"""What the views of the app in `app_processes` must hold: what DuckDB makes of the rows of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from penstock.derive.query import query
from penstock.derive.status import views as statuses
from penstock.log import Log, Topic

EXPECTED = {
    "totals": "select kind, count(*) as events, sum(amount)::bigint as amount from living group by kind",
    "seconds": """
        select kind, time_bucket(interval '1 second', "at") as window_start,
               count(*) as events, sum(amount)::bigint as amount
        from living group by all
    """,
    "strict": """
        select kind, time_bucket(interval '1 second', "at") as window_start,
               count(*) as events, sum(amount)::bigint as amount
        from living where id not in (select id from late) group by all
    """,
    "newest": 'select kind, max("at") as "at" from living group by kind',
    "large": "select id, amount from living where amount > 50",
}
WRITTEN = {
    "small": "select id, amount from living where amount <= 50",
    "by_kind": EXPECTED["totals"],
}


def views_of(root: Path) -> Path:
    return root / "apps" / "shop" / "views.sqlite"


def shown(root: Path, sql: str) -> list[tuple[Any, ...]]:
    with query(views_of(root), sql) as answer:
        return sorted(tuple(row) for row in answer)


def assert_right(root: Path) -> None:
    """All views are what the log says, every event is in them or set aside once, and the books of each view say so."""
    with Log(root) as log, duckdb.connect() as oracle:
        oracle.execute("SET TimeZone = 'UTC'")
        events = log.topic("events").read()
        dead = _ids_of_the_dead(log)
        late = log.topic("events.late").read() if "events.late" in log.topics() else events.slice(0, 0)
        oracle.register("events", events)
        oracle.register("dead", pa.table({"id": pa.array(dead, pa.int64())}))
        oracle.register("late", late)
        oracle.execute("create view living as select * from events where id not in (select id from dead)")
        for view, sql in EXPECTED.items():
            expected = oracle.sql(sql)
            assert shown(root, f"select {', '.join(map(_quoted, expected.columns))} from {view}") == sorted(
                expected.fetchall()
            ), view
        for topic, sql in WRITTEN.items():
            assert _rows_in(log.topic(topic)) == sorted(oracle.sql(sql).fetchall()), topic
        ((ahead,),) = oracle.sql('select count(*) from events where "at" > now() + interval 1 day').fetchall()
        ((small,),) = oracle.sql("select count(*) from living where not amount > 50").fetchall()
    assert len(set(dead)) == len(dead) == ahead
    lates = late.column("id").to_pylist()
    assert len(set(lates)) == len(lates)
    for status in statuses(views_of(root)):
        books = {name: status.facts[name] for name in ("came", "counted", "late", "dead", "filtered")}
        aside = {"late": late.num_rows if status.name == "strict" else 0, "dead": ahead}
        filtered = small if status.name == "large" else 0
        counted = events.num_rows - aside["late"] - ahead - filtered
        assert books == {"came": events.num_rows, "counted": counted, "filtered": filtered, **aside}, status.name


def _rows_in(topic: Topic) -> list[tuple[Any, ...]]:
    """What a topic says: all its rows, or the last one of each key."""
    rows = [tuple(row.values()) for row in topic.read().to_pylist()]
    key = len(topic.settings.key)
    return sorted({row[:key]: row for row in rows}.values() if key else rows)


def _ids_of_the_dead(log: Log) -> list[int]:
    if "shop.dead" not in log.topics():
        return []
    return [json.loads(row)["id"] for row in log.topic("shop.dead").read().column("row").to_pylist()]


def _quoted(name: str) -> str:
    return f'"{name}"'
