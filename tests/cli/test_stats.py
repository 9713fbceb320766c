"""`penstock stats`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result


def test_all_topics_are_summed_up(run: Callable[..., Result], orders: str) -> None:
    header, row = run("stats").stdout.splitlines()
    assert header.split()[:5] == ["topic", "partitions", "rows", "size", "segments"]
    assert row.split()[:3] == ["orders", "2", "3"]


def test_one_topic_is_shown_by_partition(run: Callable[..., Result], orders: str) -> None:
    _, *rows = run("stats", orders).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert sum(int(row.split()[3]) for row in rows) == 3


def test_as_json(run: Callable[..., Result], orders: str) -> None:
    for args in (("stats",), ("stats", orders)):
        (topic,) = json.loads(run(*args, "--json").stdout)["topics"]
        assert topic["topic"] == "orders"
        assert sum(part["rows"] for part in topic["partitions"]) == 3
        assert all(part["last_append_time"].endswith("Z") for part in topic["partitions"])


def test_a_log_without_topics_says_so(run: Callable[..., Result], orders: str, folder: Path) -> None:
    run("topic", "drop", orders, "--yes")
    assert run("stats").stdout == f"no topics in {folder}\n"
