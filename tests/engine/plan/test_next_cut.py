"""Choosing the next cut, and what time it is after it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.plan.cut import Cut, SourceCut
from penstock.engine.plan.inputs import open_inputs
from penstock.engine.plan.next_cut import Times, first_cut, next_cut, rows_in, times_after, together
from penstock.engine.plan.watermark import SourceTime
from penstock.flow.settings import AppSettings
from penstock.log import Log
from penstock.units import NO_TIME

MARKS = st.none() | st.integers(0, 100)


def cut_of(marks: dict[str, int | None]) -> Cut:
    """A cut of topics whose watermarks are these; None where there was no event yet."""
    sources = {
        name: SourceCut(name, name, {}, {}, SourceTime(NO_TIME if mark is None else mark))
        for name, mark in marks.items()
    }
    return Cut(1, 0, sources)


def time_of(marks: dict[str, int | None], reached: set[str], before: Times | None = None) -> int:
    group = tuple(sorted(marks))
    return times_after([group], before or {}, cut_of(marks), frozenset(reached))[together(group)]


def test_the_time_of_several_topics_is_that_of_the_one_furthest_behind() -> None:
    assert time_of({"a": 7, "b": 5, "c": 9}, set()) == 5


def test_a_topic_without_events_holds_nobody_up() -> None:
    assert time_of({"a": 7, "b": None}, {"a", "b"}) == 7
    assert time_of({"a": None, "b": None}, {"a", "b"}) == NO_TIME


def test_a_topic_whose_events_are_still_to_be_read_holds_up_the_others() -> None:
    assert time_of({"a": 7, "b": None}, {"a"}) == NO_TIME


@given(st.lists(st.tuples(MARKS, MARKS, st.sets(st.sampled_from("ab"))), max_size=6))
def test_time_never_goes_back(epochs: list[tuple[int | None, int | None, set[str]]]) -> None:
    times: Times = {}
    for a, b, reached in epochs:
        now = times_after([("a", "b"), ("a",)], times, cut_of({"a": a, "b": b}), frozenset(reached))
        assert all(now[group] >= times.get(group, NO_TIME) for group in now)
        times = now


def test_tables_are_read_before_the_first_event_that_looks_up_in_them(tmp_path: Path) -> None:
    app = ps.App("shop")
    orders = app.topic("orders", schema="id long, customer long, at timestamp", time="at")
    customers = app.table("customers", schema="customer long, name string", key="customer")
    app.view("named", orders.join(customers, on="customer", as_of="now"))
    few, now = AppSettings(max_rows=4), 10**15
    with Log(tmp_path, clock=lambda: 1_000_000.0) as log:
        inputs = open_inputs(log, app.plan)
        cut = first_cut(inputs, 0)
        log.topic("customers").append([{"customer": number, "name": "x"} for number in range(6)])
        log.topic("orders").append([{"id": 1, "customer": 1, "at": "1970-01-01"}])
        loading, reached = next_cut(log, inputs, cut, few, now=now)
        assert ends(loading) == {"customers": 4, "orders": 0}
        assert "orders" not in reached  # so that it is no reason for time to move on
        loaded, _ = next_cut(log, inputs, loading, few, now=now)
        assert ends(loaded) == {"customers": 6, "orders": 1}
        # Later on, events do not wait for a table that changes faster than it is read.
        log.topic("customers").append([{"customer": 7, "name": "y"} for _ in range(6)])
        log.topic("orders").append([{"id": 2, "customer": 1, "at": "1970-01-01"}])
        later, _ = next_cut(log, inputs, loaded, few, now=now)
        assert ends(later) == {"customers": 9, "orders": 2}


def ends(cut: Cut) -> dict[str, int]:
    return {name: sum(source.ends.values()) for name, source in cut.sources.items()}


def test_what_was_built_before_is_followed_in_rows_and_in_time(tmp_path: Path) -> None:
    app = ps.App("shop")
    app.view("v", app.topic("events", schema="id long, at timestamp", time="at").select(id="id"))
    with Log(tmp_path, clock=lambda: 1_000.0) as log:
        inputs = open_inputs(log, app.plan)
        start = first_cut(inputs, 0)
        log.topic("events").append([{"id": number, "at": f"1970-01-01 00:10:0{number}"} for number in range(6)])
        now, few = 1_000_000_000, AppSettings(max_rows=4)
        ahead, _ = next_cut(log, inputs, start, AppSettings(), now=now)
        assert ahead.sources["events"].time is not None
        assert ahead.sources["events"].time.watermark == 605_000_000
        first, reached = next_cut(log, inputs, start, few, now=now, until=ahead.sources)
        assert (rows_in(first), reached) == (4, frozenset())
        log.topic("events").append([{"id": 7, "at": "1970-01-01 00:11:00"}])
        second, reached = next_cut(log, inputs, first, few, now=now + 10**9, until=ahead.sources)
        assert (rows_in(second), reached) == (2, {"events"})
        assert second.sources["events"].ends == ahead.sources["events"].ends
        assert second.sources["events"].time == ahead.sources["events"].time
