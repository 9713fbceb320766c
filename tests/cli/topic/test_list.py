"""`penstock topic list`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result


def test_topics_are_listed_with_their_sizes(run: Callable[..., Result], orders: str) -> None:
    run("topic", "create", "clicks", "--schema", "url string")
    _, *rows = run("topic", "list").stdout.splitlines()
    assert [row.split()[:3] for row in rows] == [["clicks", "1", "0"], ["orders", "2", "3"]]


def test_as_json(run: Callable[..., Result], orders: str) -> None:
    (topic,) = json.loads(run("topic", "list", "--json").stdout)["topics"]
    assert topic.pop("bytes") > 0
    assert topic == {"topic": "orders", "partitions": 2, "rows": 3, "key": ["order_id"], "time": None}


def test_a_log_without_topics_says_so(run: Callable[..., Result], orders: str, folder: Path) -> None:
    run("topic", "drop", orders, "--yes")
    assert run("topic", "list").stdout == f"no topics in {folder}\n"
    assert json.loads(run("topic", "list", "--json").stdout) == {"topics": []}
