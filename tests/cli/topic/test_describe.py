"""`penstock topic describe`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log
from tests.engine.ledger.reading_app import ReadingApp


def test_everything_about_a_topic_is_shown(run: Callable[..., Result], log: Log) -> None:
    schema = "id bigint not null comment 'the number', at timestamp"
    run("topic", "create", "t", "--schema", schema, "--key", "id", "--time", "at", "--retain", "7 days")
    run("topic", "evolve", "t", "--schema", f"{schema}, note string")
    log.group("readers").commit("t", {0: 0})
    shown = run("topic", "describe", "t").stdout
    for text in ("bigint", "the number", "note string", "1 week", "readers", "fsync", "key:", "event time:"):
        assert text in shown


def test_as_json(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 0})
    document = json.loads(run("topic", "describe", orders, "--json").stdout)
    assert document["created_at"].endswith("Z")
    assert document["schema_versions"] == [document["schema"]]
    assert document["settings"]["key"] == ["order_id"]
    assert document["groups"] == [{"group": "readers", "lag": 3}]
    assert document["apps"] == []
    assert sum(part["end_offset"] for part in document["partitions"]) == 3


def test_the_settings_that_are_not_set_are_shown_as_such(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("t", "a int")
    shown = run("topic", "describe", "t").stdout
    assert "retention:      forever" in shown
    assert "no app and no group reads it" in shown


def test_the_apps_and_groups_that_read_it_are_named_with_their_lag(
    run: Callable[..., Result], log: Log, orders: str
) -> None:
    log.group("readers").commit(orders, {0: 0})
    app = ReadingApp(log)
    app.commit_epoch({orders: 1})
    lines = run("topic", "describe", orders).stdout.splitlines()
    readers = [line.split() for line in lines[lines.index("") :] if line.startswith(("app", "group"))]
    assert readers == [["app", "shop", "stopped", "2", "0", "seconds"], ["group", "readers", "-", "3", "-"]]
    (shown,) = json.loads(run("topic", "describe", orders, "--json").stdout)["apps"]
    assert (shown["app"], shown["running"], shown["lag"]) == ("shop", False, 2)
