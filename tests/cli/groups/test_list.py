"""`penstock groups list`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from penstock import Log


def test_groups_are_listed_with_members_and_lag(run: Callable[..., Result], log: Log, orders: str) -> None:
    member = log.group("readers").join([orders])
    _, row = run("groups", "list").stdout.splitlines()
    assert row.split() == ["readers", "orders", "1", "3"]
    member.close()
    document = json.loads(run("groups", "list", "--json").stdout)
    assert document == {"groups": [{"group": "readers", "topics": ["orders"], "members": 0, "lag": 3}]}


def test_a_log_without_groups_says_so(run: Callable[..., Result], orders: str, folder: Path) -> None:
    assert run("groups", "list").stdout == f"no groups in {folder}\n"
