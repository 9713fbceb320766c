"""`penstock topic describe`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


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
    assert document["groups"] == ["readers"]
    assert sum(part["end_offset"] for part in document["partitions"]) == 3


def test_the_settings_that_are_not_set_are_shown_as_such(run: Callable[..., Result], log: Log) -> None:
    log.create_topic("t", "a int")
    shown = run("topic", "describe", "t").stdout
    assert "retention:      for ever" in shown
    assert "read by:        no group" in shown
