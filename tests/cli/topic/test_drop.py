"""`penstock topic drop`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


def test_it_asks_first_and_no_changes_nothing(run: Callable[..., Result], log: Log, orders: str) -> None:
    result = run("topic", "drop", orders, stdin="n\n")
    assert result.exit_code == 1
    assert "Drop topic 'orders' with 3 rows?" in result.output
    assert log.topics() == ["orders"]


def test_yes_drops_it(run: Callable[..., Result], log: Log, orders: str) -> None:
    assert run("topic", "drop", orders, stdin="y\n").exit_code == 0
    assert log.topics() == []


def test_with_yes_nobody_is_asked_and_json_is_the_only_output(run: Callable[..., Result], orders: str) -> None:
    result = run("topic", "drop", orders, "--yes", "--json")
    assert json.loads(result.stdout) == {"topic": "orders", "dropped": True, "rows": 3}


def test_nobody_to_answer_means_no(run: Callable[..., Result], log: Log, orders: str) -> None:
    assert run("topic", "drop", orders, stdin="").exit_code == 1
    assert log.topics() == ["orders"]
