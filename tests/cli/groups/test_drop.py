"""`penstock groups drop`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


def test_it_asks_first_then_forgets_the_group(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 1})
    assert run("groups", "drop", "readers", stdin="n\n").exit_code == 1
    assert log.groups() == ["readers"]
    assert run("groups", "drop", "readers", stdin="y\n").exit_code == 0
    assert log.groups() == []


def test_as_json(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 1})
    result = run("groups", "drop", "readers", "--yes", "--json")
    assert json.loads(result.stdout) == {"group": "readers", "dropped": True, "topics": ["orders"]}


def test_a_group_with_a_living_member_is_kept(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").join([orders])
    result = run("groups", "drop", "readers", "--yes")
    assert result.exit_code == 1
    assert "living members" in result.stderr
