"""Which columns of a view are fetched from the log, and do not go through Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.app import App
from penstock.engine.build.fetch import Fetch, fetch_for
from penstock.engine.build.needs import needs_of
from penstock.flow.stream import Stream
from penstock.flow.table import Table

SCHEMA = "id bigint, Kind string, amount bigint, note string, at timestamp"


def declared(rows: Callable[[Stream], Stream | Table]) -> App:
    app = App("shop")
    app.view("chosen", rows(app.topic("events", schema=SCHEMA, time="at")))
    return app


def fetch_of(rows: Callable[[Stream], Stream | Table]) -> Fetch | None:
    return fetch_for(declared(rows).plan.views[0])


def test_plain_columns_are_fetched_under_any_name_and_others_are_computed() -> None:
    fetch = fetch_of(lambda events: events.where("id > 1").select("id", kind="Kind", twice="amount * 2", moment="`at`"))
    assert fetch is not None
    assert fetch.topic.name == "events"
    assert fetch.columns == {"id": "id", "kind": "Kind", "moment": "at"}
    assert fetch.computed == ("twice",)


def test_a_column_is_followed_through_every_selection() -> None:
    fetch = fetch_of(lambda events: events.select(a="note", b="amount + 1").where("b > 1").select("b", c="a", d="b"))
    assert fetch is not None
    assert fetch.columns == {"c": "note"}
    assert fetch.computed == ("b", "d")


def test_of_a_topic_as_it_is_everything_is_fetched() -> None:
    fetch = fetch_of(lambda events: events)
    assert fetch is not None
    assert list(fetch.columns) == ["id", "Kind", "amount", "note", "at"]
    assert fetch.computed == ()


def test_spark_reads_only_what_expressions_need_and_the_place_of_rows() -> None:
    app = declared(lambda events: events.where("id > 1").select("note", "Kind", twice="amount * 2"))
    (view,) = app.plan.views
    fetch = fetch_for(view)
    assert fetch is not None
    needs = needs_of(app.plan, {"chosen": fetch})
    assert needs.columns[fetch.topic] == {"id", "amount"}
    assert fetch.topic in needs.origin


@pytest.mark.parametrize(
    "rows",
    [
        lambda events: events.select("id", "amount"),
        lambda events: events.select(upper="upper(note)"),
        lambda events: events.map(lambda frame: frame).select("note"),
        lambda events: events.union(events),
        lambda events: events.latest("id"),
        lambda events: events.distinct("note"),
        lambda events: events.group_by("note").agg(n="count(*)"),
    ],
    ids=["little", "computed", "map", "union", "latest", "distinct", "aggregate"],
)
def test_nothing_is_fetched_where_it_does_not_pay_or_rows_are_not_those_of_a_topic(
    rows: Callable[[Stream], Stream | Table],
) -> None:
    assert fetch_of(rows) is None
