"""`penstock groups lag`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


def test_the_offsets_a_group_has_not_committed_are_its_lag(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 1})
    _, *rows = run("groups", "lag", "readers").stdout.splitlines()
    ends = log.topic(orders).ends()
    assert [row.split() for row in rows] == [
        ["orders", "0", "1", str(ends[0]), str(ends[0] - 1), "-"],
        ["orders", "1", "-", str(ends[1]), str(ends[1]), "-"],
    ]


def test_as_json(run: Callable[..., Result], log: Log, orders: str) -> None:
    member = log.group("readers").join([orders])
    document = json.loads(run("groups", "lag", "readers", "--json").stdout)
    assert (document["group"], document["lag"]) == ("readers", 3)
    assert {part["member"] for part in document["partitions"]} == {member.id}


def test_a_group_that_does_not_exist_is_an_error(run: Callable[..., Result], log: Log, orders: str) -> None:
    assert "hint: this log has no groups yet" in run("groups", "lag", "readers").stderr
    log.group("readers").commit(orders, {0: 0})
    result = run("groups", "lag", "reader")
    assert result.exit_code == 1
    assert "hint: did you mean 'readers'?" in result.stderr
