"""What the views of the app in `app_processes` must hold: what DuckDB makes of the rows of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from penstock.derive.views import query
from penstock.engine.ledger.ledger import Ledger
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


def directory_of(root: Path) -> Path:
    """The folder of the app."""
    return root / "apps" / "shop"


def shown(root: Path, sql: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in query(directory_of(root), sql, ()).rows())


def assert_right(root: Path) -> None:
    """All views are what the log says, every event is in them or set aside once, and the books of each view say so."""
    with Log(root) as log, duckdb.connect() as oracle:
        oracle.execute("SET TimeZone = 'UTC'")
        events = log.topic("events").read().to_arrow()
        dead = _ids_of_the_dead(log)
        late = log.topic("events.late").read().to_arrow() if "events.late" in log.topics() else events.slice(0, 0)
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
    last = Ledger(directory_of(root)).last_commit()
    assert last is not None
    for name in last.views:
        account = last.live.accounts[name]
        aside = {"late": late.num_rows if name == "strict" else 0, "dead": ahead}
        filtered = small if name == "large" else 0
        counted = events.num_rows - aside["late"] - ahead - filtered
        expected = {"came": events.num_rows, "counted": counted, "filtered": filtered, **aside}
        assert {what: getattr(account, what) for what in expected} == expected, name


def _rows_in(topic: Topic) -> list[tuple[Any, ...]]:
    """What a topic says: all its rows, or the last one of each key."""
    rows = [tuple(row.values()) for row in topic.read()]
    key = len(topic.settings.key)
    return sorted({row[:key]: row for row in rows}.values() if key else rows)


def _ids_of_the_dead(log: Log) -> list[int]:
    if "shop.dead" not in log.topics():
        return []
    return [json.loads(row)["id"] for row in log.topic("shop.dead").read().to_arrow().column("row").to_pylist()]


def _quoted(name: str) -> str:
    return f'"{name}"'
