"""`penstock groups reset`."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from penstock import Log


def test_the_plan_is_shown_and_nothing_is_changed(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 1, 1: 1})
    result = run("groups", "reset", "readers", orders, "--to", "start")
    assert result.exit_code == 0
    assert [row.split() for row in result.stdout.splitlines()[1:]] == [
        ["orders", "0", "1", "0"],
        ["orders", "1", "1", "0"],
    ]
    assert result.stderr == "nothing was changed; add --execute to do this\n"
    assert log.group("readers").committed(orders) == {0: 1, 1: 1}


def test_execute_moves_the_group(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 1, 1: 1})
    assert run("groups", "reset", "readers", orders, "--to", "start", "--execute").exit_code == 0
    assert log.group("readers").committed(orders) == {0: 0, 1: 0}


def test_one_partition_can_be_moved_alone(run: Callable[..., Result], log: Log, orders: str) -> None:
    log.group("readers").commit(orders, {0: 0, 1: 0})
    result = run("groups", "reset", "readers", orders, "--to", "1", "--partition", "1", "--execute", "--json")
    assert json.loads(result.stdout) == {
        "group": "readers",
        "new": False,
        "executed": True,
        "moves": [{"topic": "orders", "partition": 1, "committed": 0, "target": 1}],
    }
    assert log.group("readers").committed(orders) == {0: 0, 1: 1}


def test_a_new_group_is_reported_as_new(run: Callable[..., Result], log: Log, orders: str) -> None:
    args = ("groups", "reset", "readers", orders, "--to", "end")
    assert json.loads(run(*args, "--json").stdout)["new"] is True
    assert run(*args).stdout.splitlines()[0] == "group 'readers' is new"
    done = run(*args, "--execute").stdout.splitlines()
    assert (done[0], done[-1]) == ("group 'readers' is new", "group 'readers' was created")
    near = run("groups", "reset", "reader", orders, "--to", "end")
    assert near.stdout.splitlines()[0] == "group 'reader' is new; did you mean 'readers'?"


def test_a_group_with_a_living_member_stays_where_it_is(run: Callable[..., Result], log: Log, orders: str) -> None:
    member = log.group("readers").join([orders])
    result = run("groups", "reset", "readers", orders, "--to", "end", "--execute")
    assert result.exit_code == 1
    assert member.id in result.stderr
    assert log.group("readers").committed(orders) == {}


def test_what_is_not_a_position_is_refused(run: Callable[..., Result], orders: str) -> None:
    result = run("groups", "reset", "readers", orders, "--to", "yesterday")
    assert result.exit_code == 1
    assert "error: topic 'orders': 'yesterday' is not a position" in result.stderr
