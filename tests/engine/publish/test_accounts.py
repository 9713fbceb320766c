"""The books of an app."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.ledger.records import Account
from penstock.engine.publish.accounts import Meter, account, meters
from penstock.errors import PenstockError
from penstock.flow import plan as flow

COUNTS = st.integers(0, 1_000)


def declared() -> tuple[ps.App, ps.Stream]:
    app = ps.App("shop")
    return app, app.topic("events", schema="id long, kind string, at timestamp", time="at")


def meters_of(rows: ps.Stream | ps.Table, *stateful: ps.Stream | ps.Table) -> list[Meter]:
    states: dict[tuple[flow.Node, int], str] = {(one.node, 0): f"state {at}" for at, one in enumerate(stateful)}
    return meters(rows.node, states)


def test_events_are_counted_where_they_first_meet_state() -> None:
    _, events = declared()
    minutes = events.where("id > 0").window(ps.tumbling("1 minute")).group_by("kind").agg(n="count(*)")
    assert meters_of(minutes, minutes) == [Meter("state 0", ("events",), changes_numbers=False)]
    assert meters_of(minutes.select(n="n"), minutes) == [Meter("state 0", ("events",), changes_numbers=False)]


def test_events_that_meet_none_are_counted_where_they_are_staged() -> None:
    _, events = declared()
    assert meters_of(events.where("id > 0")) == [Meter(None, ("events",), changes_numbers=False)]
    mapped = events.map(lambda rows: rows, schema="id long")
    assert meters_of(mapped) == [Meter(None, ("events",), changes_numbers=True)]


@given(came=COUNTS, dead=COUNTS, arrived=COUNTS, late=COUNTS)
def test_what_came_in_is_somewhere(came: int, dead: int, arrived: int, late: int) -> None:
    came, arrived = came + dead + arrived, arrived + late
    came = max(came, dead + arrived)
    found = account(
        "v",
        [Meter("s", ("events",), changes_numbers=False)],
        {"events": {"in": came, "dead": dead}},
        {"s": {"events": arrived, "late": late}},
        {},
    )
    assert found.came == found.counted + found.late + found.dead + found.filtered
    assert (found.late, found.dead) == (late, dead)
    assert found + found == Account(*(2 * one for one in astuple(found)))


def test_more_than_came_in_is_refused_unless_a_function_makes_rows() -> None:
    sources = {"events": {"in": 1, "dead": 0}}
    with pytest.raises(PenstockError, match="the books do not balance: 1 events came in, 0 were set aside, 2"):
        account("v", [Meter(None, ("events",), changes_numbers=False)], sources, {}, {"v": 2})
    found = account("v", [Meter(None, ("events",), changes_numbers=True)], sources, {}, {"v": 2})
    assert (found.came, found.counted, found.filtered) == (1, 2, -1)


def test_a_union_is_counted_together() -> None:
    app, events = declared()
    both = events.where("id > 0").union(app.topic("more", schema="id long, kind string, at timestamp", time="at"))
    sources = {"events": {"in": 5, "dead": 1}, "more": {"in": 3, "dead": 0}}
    found = account("v", meters_of(both), sources, {}, {"v": 6})
    assert (found.came, found.counted, found.dead, found.filtered) == (8, 6, 1, 1)
