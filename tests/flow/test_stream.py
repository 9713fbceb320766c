"""What only streams can do, and their groups and windows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Stream, Table, hopping, session, sliding, tumbling
from penstock.errors import DeclarationError
from penstock.flow.plan import Aggregate, Changes, Distinct, Hopping, Latest, Named, Shape, Top, Tumbling, Windowing

MINUTE = 60_000_000


def test_distinct_remembers_its_columns_and_how_far_it_looks_back(orders: Stream) -> None:
    node = orders.distinct("order_id", within="1 hour").node
    assert isinstance(node, Distinct)
    assert (node.columns, node.within) == (("order_id",), 60 * MINUTE)
    assert node.shape.retracts
    assert node.shape.key is None
    assert orders.distinct("order_id").node.shape.key == ("order_id",)
    assert orders.distinct().node.columns == orders.columns  # type: ignore[union-attr]


def test_latest_gives_a_table_with_that_key(orders: Stream) -> None:
    table = orders.latest("customer_id")
    assert isinstance(table, Table)
    assert isinstance(table.node, Latest)
    assert table.node.shape.key == ("customer_id",)
    assert table.node.shape.retracts


def test_changes_gives_a_stream_with_what_happened(customers: Table) -> None:
    stream = customers.changes()
    assert isinstance(stream, Stream)
    assert isinstance(stream.node, Changes)
    assert stream.node.shape == Shape(("id", "name", "country", "change"))


def test_groups_may_be_columns_and_expressions(orders: Stream) -> None:
    node = orders.group_by("country", day="date(placed_at)").agg(revenue="sum(amount)", orders="count(*)").node
    assert isinstance(node, Aggregate)
    assert node.keys == (Named("country", "country"), Named("day", "date(placed_at)"))
    assert node.windowing is None
    columns = ("country", "day", "revenue", "orders")
    assert node.shape == Shape(columns, time=None, key=("country", "day"), retracts=True)


def test_group_by_nothing_is_one_group(orders: Stream) -> None:
    assert orders.group_by().agg(orders="count(*)").node.shape == Shape(("orders",), None, (), retracts=True)


def test_the_result_of_a_window_says_which_window_it_is(orders: Stream) -> None:
    node = orders.window(tumbling("1 minute")).group_by("country").agg(orders="count(*)").node
    assert isinstance(node, Aggregate)
    assert node.windowing == Windowing(Tumbling(MINUTE), "final", "correct", 60 * MINUTE)
    assert node.shape.columns == ("country", "window_start", "window_end", "revision", "orders")
    assert (node.shape.time, node.shape.key, node.shape.retracts) == ("window_end", ("country", "window_start"), True)


@pytest.mark.parametrize(
    ("window", "key"),
    [
        (tumbling("1 minute"), ("country", "window_start")),
        (hopping("1 minute", "10 seconds"), ("country", "window_start")),
        (sliding("1 minute"), ("country", "window_end")),
        (session("1 minute"), ("country", "window_start", "window_end")),
    ],
)
def test_the_key_of_a_window_is_what_tells_windows_apart(orders: Stream, window: Any, key: tuple[str, ...]) -> None:
    assert orders.window(window).group_by("country").agg(orders="count(*)").node.shape.key == key


def test_late_events_are_kept_for_an_hour_unless_they_are_dropped(orders: Stream) -> None:
    assert orders.window(tumbling("1 minute"), keep="2 hours").windowing.keep == 120 * MINUTE
    dropping = orders.window(tumbling("1 minute"), emit="changes", late="drop").windowing
    assert dropping == Windowing(Tumbling(MINUTE), "changes", "drop", 0)


def test_the_results_of_windows_can_be_put_into_larger_windows(orders: Stream) -> None:
    minutes = orders.window(tumbling("1 minute")).group_by("country").agg(orders="count(*)")
    hours = minutes.window(tumbling("1 hour")).group_by().agg(most="max(orders)")
    assert hours.columns == ("window_start", "window_end", "revision", "most")


def test_groups_can_keep_their_first_rows(orders: Stream) -> None:
    node = orders.group_by("country", day="date(placed_at)").top(2, by="price desc").node
    assert isinstance(node, Top)
    assert node.per == ("country", "day")
    assert node.shape.key == ("country", "day", "rank")
    assert node.shape.columns is not None
    assert node.shape.columns[-2:] == ("day", "rank")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rows: rows.distinct("order"), "distinct: there is no column 'order'"),
        (lambda rows: rows.distinct("order_id", "order_id"), "same name"),
        (lambda rows: rows.distinct(within="soon"), "within: 'soon' is not a duration"),
        (lambda rows: rows.distinct(within="0 seconds"), "more than nothing"),
        (lambda rows: rows.drop("placed_at").distinct(within="1 hour"), "events with a time"),
        (lambda rows: rows.map(len).distinct(), "columns are not known"),
        (lambda rows: rows.latest(), "columns of the key are needed"),
        (lambda rows: rows.latest("customer"), "no column 'customer'"),
        (lambda rows: rows.window("1 minute"), "a window is needed; found '1 minute'"),
        (lambda rows: rows.window(tumbling("1 minute"), emit="often"), "emit is"),
        (lambda rows: rows.window(tumbling("1 minute"), late="never"), "late is"),
        (lambda rows: rows.window(tumbling("1 minute"), late="drop", keep="1 hour"), "nothing is kept"),
        (lambda rows: rows.window(tumbling("1 minute"), keep="long"), "keep: 'long' is not a duration"),
        (lambda rows: rows.group_by("contry"), "group_by: there is no column 'contry'"),
        (lambda rows: rows.group_by(n="count(*)"), "an aggregate is not allowed here"),
        (lambda rows: rows.group_by("country", country="price"), "same name"),
        (lambda rows: rows.group_by("country").agg(), "at least one aggregate"),
        (lambda rows: rows.group_by("country").agg(n="price"), "agg: n: there is no aggregate in it"),
        (lambda rows: rows.group_by("country").agg(n="sum(price) + quantity"), "column 'quantity' is used outside"),
        (lambda rows: rows.group_by("country").agg(country="count(*)"), "is one that the rows are grouped by"),
        (
            lambda rows: rows.window(tumbling("1 minute")).group_by(revision="quantity").agg(n="count(*)"),
            "a column 'revision' of its own",
        ),
        (
            lambda rows: rows.window(tumbling("1 minute")).group_by().agg(window_end="max(placed_at)"),
            "a column 'window_end' of its own",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(orders: Stream, call: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        call(orders)


def test_a_window_on_events_without_a_time_is_refused_with_the_reason(app: App, orders: Stream) -> None:
    untimed = app.topic("untimed", schema="a bigint")
    with pytest.raises(DeclarationError) as refused:
        untimed.window(tumbling("1 minute"))
    assert "topic 'untimed' was declared without one" in refused.value.message
    assert refused.value.hint == "name the column: app.topic(..., time=...)"
    with pytest.raises(DeclarationError, match="'placed_at' is no longer among the columns"):
        orders.drop("placed_at").window(tumbling("1 minute"))
    with pytest.raises(DeclarationError, match="'placed_at' is no longer among the columns"):
        orders.group_by("country").agg(n="count(*)").window(tumbling("1 minute"))


def test_a_table_of_the_log_has_no_windows(app: App) -> None:
    table = app.table("prices", schema="id bigint, since timestamp", key="id", time="since")
    with pytest.raises(DeclarationError, match="table 'prices' has none"):
        table.window(tumbling("1 day"))


def test_hopping_keeps_what_it_was_given(orders: Stream) -> None:
    assert orders.window(hopping("10 minutes", "1 minute")).windowing.window == Hopping(10 * MINUTE, MINUTE)


def test_a_window_over_answers_is_kept_as_long_as_they_are_corrected() -> None:
    events = App("shop").topic("events", schema="kind string, at timestamp", time="at")
    minutes = events.window(tumbling("1 minute"), keep="2 hours").group_by("kind").agg(events="count(*)")
    hours = minutes.window(tumbling("1 hour")).group_by("kind").agg(most="max(events)")
    assert isinstance(hours.node, Aggregate)
    assert hours.node.windowing is not None
    assert hours.node.windowing.keep == 7_200_000_000
    with pytest.raises(DeclarationError, match="can be corrected for 2 hours, and this window would miss that"):
        minutes.window(tumbling("1 hour"), keep="10 minutes")
    with pytest.raises(DeclarationError, match="would miss that"):
        minutes.window(tumbling("1 hour"), late="drop")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda rows: rows.select("price as cost"), 'write cost="price"'),
        (lambda rows: rows.select("order_id", "upper(country) AS code"), 'write code="upper(country)"'),
        (lambda rows: rows.select("*"), "leave select out to keep all columns"),
        (lambda rows: rows.select("price * 2"), 'an expression needs a name: name="price * 2"'),
        (lambda rows: rows.agg(n="cuont(*)"), "did you mean 'count'?"),
        (lambda rows: rows.window(tumbling("1 day", tz="Europe/Berlin")), 'write zone="Europe/Berlin"'),
        (lambda rows: rows.window(tumbling("1 day", zone="Europe/Berln")), "did you mean 'Europe/Berlin'?"),
        (lambda rows: rows.group_by("country").agg(country="max(price)"), "such as country_of_rows"),
        (
            lambda rows: rows.window(tumbling("1 day")).agg(window_start="min(price)"),
            "choose another name, such as window_start_of_rows; window_start needs no declaration",
        ),
    ],
)
def test_a_hint_can_be_followed(orders: Stream, call: Callable[[Stream], object], hint: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        call(orders)
    assert hint in str(refused.value.hint)


def test_a_wrong_number_of_arguments_is_found_where_it_is_written(orders: Stream) -> None:
    wrong = "'upper' has the wrong number of arguments: it takes 1 argument; found 'upper(country, 1)'"
    with pytest.raises(DeclarationError, match=re.escape(wrong)):
        orders.select(c="upper(country, 1)")
    with pytest.raises(DeclarationError, match="'percentile' has the wrong number of arguments: it takes 2 or 3"):
        orders.agg(c="percentile(price)")
