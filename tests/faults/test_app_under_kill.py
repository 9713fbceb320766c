"""A running app is killed again and again while others append and read; nothing is lost and nothing counted twice."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.derive.query import query
from penstock.derive.status import views as statuses
from penstock.log import Log, TopicSettings
from tests.faults.app_processes import PENSTOCK, PROGRAM, SCHEMA, RunningApp, look, produce, run_once
from tests.faults.processes import ROOT, Nursery

ALL = "(select * from events where id not in (select id from dead))"
ORACLES = {
    "totals": f"select kind, count(*) as events, sum(amount)::bigint as amount from {ALL} group by kind",
    "seconds": f"""
        select kind, time_bucket(interval '1 second', "at") as window_start,
               count(*) as events, sum(amount)::bigint as amount from {ALL} group by 1, 2
    """,
    "large": f"select id, amount from {ALL} where amount > 50",
}


@pytest.fixture
def program(tmp_path: Path, root: Path) -> Path:
    """The app, and the topic it reads."""
    path = tmp_path / "shop.py"
    path.write_text(PROGRAM)
    with Log(root) as log:
        log.create_topic("events", SCHEMA, settings=TopicSettings(partitions=2, key=("id",), time="at"))
    return path


def killed_again_and_again(nursery: Nursery, program: Path, root: Path, rounds: int) -> None:
    producers = [nursery.start(produce, root=root, name=f"producer-{number}", pause=0.1) for number in range(2)]
    reader = None
    for number in range(rounds):
        app = RunningApp(program, root)
        try:
            app.wait_for_epochs(random.randrange(1, 6))
            if reader is None:
                reader = nursery.start(look, views=views_of(root))
            reader.hear("looked", timeout=120)
        finally:
            app.kill()
        assert reader.alive, reader.all_told("failed")
        if number == rounds - 2:
            producers.pop().say("stop")
    for producer in producers:
        producer.say("stop")
        producer.finish()
    run_once(program, root)
    assert reader is not None
    assert reader.alive, reader.all_told("failed")


def views_of(root: Path) -> Path:
    return root / "apps" / "shop" / "views.sqlite"


def shown(root: Path, sql: str) -> list[tuple[Any, ...]]:
    with query(views_of(root), sql) as answer:
        return sorted(tuple(row) for row in answer)


def assert_right(root: Path) -> None:
    with Log(root) as log, duckdb.connect() as oracle:
        oracle.execute("SET TimeZone = 'UTC'")
        events = log.topic("events").read()
        dead = log.topic("shop.dead").read()
        ids = dead.column("row").to_pylist()
        oracle.execute("create table dead (id bigint)")
        oracle.executemany("insert into dead values (?)", [[json.loads(row)["id"]] for row in ids])
        oracle.register("events", events)
        for view, columns in (("totals", "kind, events, amount"), ("seconds", "kind, window_start, events, amount")):
            assert shown(root, f"select {columns} from {view}") == sorted(oracle.sql(ORACLES[view]).fetchall())
        assert shown(root, "select id, amount from large") == sorted(oracle.sql(ORACLES["large"]).fetchall())
        ahead = oracle.sql('select count(*) from events where "at" > now() + interval 1 day').fetchall()[0][0]
        came = events.num_rows
    assert len(set(ids)) == len(ids) == ahead
    for status in statuses(views_of(root)):
        books = status.facts
        assert books["came"] == came
        assert books["dead"] == ahead
        assert books["came"] == books["counted"] + books["late"] + books["dead"] + books["filtered"]
        assert books["late"] == 0


def test_a_killed_app_loses_nothing_and_counts_nothing_twice(nursery: Nursery, program: Path, root: Path) -> None:
    killed_again_and_again(nursery, program, root, rounds=2)
    assert_right(root)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_the_same_for_many_rounds(nursery: Nursery, program: Path, root: Path) -> None:
    killed_again_and_again(nursery, program, root, rounds=15)
    assert_right(root)
    checked = subprocess.run([*PENSTOCK, "verify", "--log", str(root)], cwd=ROOT, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
