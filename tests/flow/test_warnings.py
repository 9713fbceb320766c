"""What is allowed and probably not meant is said, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import App, Stream, Table, tumbling
from penstock.flow.explain import document, explain
from penstock.flow.warnings import plan_warnings


def warned(app: App, rows: Table) -> list[str]:
    """The hints of the warnings about a view."""
    app.view("v", rows)
    return [warning.hint for warning in plan_warnings(app.plan)]


@pytest.mark.parametrize(
    ("expression", "window"),
    [
        ("date_trunc('minute', placed_at)", "1 minute"),
        ("date_trunc('HOUR', placed_at)", "1 hour"),
        ("to_date(placed_at)", "1 day"),
        ("date(placed_at)", "1 day"),
        ("cast(placed_at as date)", "1 day"),
        ("placed_at::date", "1 day"),
        ("date_format(placed_at, 'yyyy-MM-dd HH')", "1 hour"),
        ("hour(placed_at)", "1 hour"),
        ("extract(hour from placed_at)", "1 hour"),
        ("date_part('minute', placed_at)", "1 minute"),
        ("dayofweek(placed_at)", "1 day"),
    ],
)
def test_groups_by_a_part_of_the_event_time_are_kept_forever(
    app: App, orders: Stream, expression: str, window: str
) -> None:
    (hint,) = warned(app, orders.group_by("country", part=expression).agg(n="count(*)"))
    assert f'.window(ps.tumbling("{window}"))' in hint
    assert f"window(placed_at, '{window}')" in hint


def test_weeks_begin_on_monday(app: App, orders: Stream) -> None:
    (hint,) = warned(app, orders.group_by(week="date_trunc('week', placed_at)").agg(n="count(*)"))
    assert 'ps.tumbling("7 days", offset="4 days")' in hint


def test_the_warning_says_where_what_and_what_becomes_of_it(app: App, orders: Stream) -> None:
    app.view("v", orders.group_by(minute="date_trunc('minute', placed_at)").agg(n="count(*)"))
    text = str(plan_warnings(app.plan)[0])
    assert text.startswith("warning: tests/flow/test_warnings.py:")
    assert "grouped by date_trunc('minute', placed_at) without a window: there are ever more groups" in text
    assert "\n  hint: if each minute is meant, use a window" in text
    assert explain(app.plan).endswith(text)
    assert document(app.plan)["warnings"]


def test_of_several_parts_the_shortest_says_which_window(app: App, orders: Stream) -> None:
    (hint,) = warned(app, orders.group_by(day="to_date(placed_at)", hour="hour(placed_at)").agg(n="count(*)"))
    assert 'ps.tumbling("1 hour")' in hint


def test_a_part_that_was_computed_before_is_found(app: App, orders: Stream) -> None:
    minutes = orders.with_columns(minute="date_trunc('minute', placed_at)").where("price > 1").rename(m="minute")
    assert warned(app, minutes.group_by("m").agg(n="count(*)"))


def test_sql_is_warned_too(app: App, orders: Stream) -> None:
    text = "SELECT date_trunc('minute', placed_at) AS minute, count(*) AS n FROM orders GROUP BY 1"
    rows: Any = app.sql(text)
    assert warned(app, rows)


@pytest.mark.parametrize(
    "rows",
    [
        lambda orders: orders.window(tumbling("1 day")).group_by(hour="hour(placed_at)").agg(n="count(*)"),
        lambda orders: orders.group_by("country").agg(n="count(*)"),
        lambda orders: orders.group_by(month="date_trunc('month', placed_at)").agg(n="count(*)"),
        lambda orders: orders.group_by(year="year(placed_at)").agg(n="count(*)"),
        lambda orders: orders.group_by("country").agg(last="max(to_date(placed_at))"),
        lambda orders: orders.latest("order_id").drop("placed_at").group_by("country").agg(n="count(*)"),
    ],
)
def test_what_is_meant_or_has_no_window_is_not_warned_of(app: App, orders: Stream, rows: Any) -> None:
    assert warned(app, rows(orders)) == []


def test_a_time_by_which_no_window_goes_is_not_warned_of(app: App, customers: Table) -> None:
    untimed = app.topic("untimed", schema="id bigint, at timestamp")
    assert warned(app, untimed.group_by(day="to_date(at)").agg(n="count(*)")) == []
