"""Joins of all kinds: what they become, what is known of their rows, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import App, Stream, Table, tumbling
from penstock.errors import DeclarationError
from penstock.flow.plan import AsOfJoin, Join, JoinKey, Shape, TimedJoin, inputs

MINUTE = 60_000_000
HOUR = 60 * MINUTE
KINDS = ("inner", "left", "right", "full", "semi", "anti")


@pytest.fixture
def clicks(app: App) -> Stream:
    schema = "order_id bigint, url string, clicked_at timestamp"
    return app.topic("clicks", schema=schema, time="clicked_at")


@pytest.fixture
def prices(app: App) -> Table:
    schema = "id bigint not null, list_price double, since timestamp"
    return app.table("prices", schema=schema, key="id", time="since")


# -- without a time ---------------------------------------------------------------------------------------------------


def test_two_tables_are_joined_without_a_time(customers: Table, prices: Table) -> None:
    table = customers.join(prices, on="id", how="left")
    assert isinstance(table, Table)
    node = table.node
    assert isinstance(node, Join)
    assert inputs(node) == (customers.node, prices.node)
    assert (node.on, node.how, node.nulls_match) == ((JoinKey("id", "id"),), "left", False)
    assert node.shape == Shape(("id", "name", "country", "list_price", "since"), key=("id",), retracts=True)


def test_columns_of_different_names_are_joined_as_pairs_and_both_stay(orders: Stream, prices: Table) -> None:
    table = orders.join(prices, on={"customer_id": "id"})
    assert isinstance(table, Table)
    assert isinstance(table.node, Join)
    assert table.node.on == (JoinKey("customer_id", "id"),)
    assert table.columns == (*(orders.columns or ()), "id", "list_price", "since")
    assert table.node.shape.time is None


def test_several_columns_are_joined_on(orders: Stream, customers: Table) -> None:
    by_pairs = customers.join(orders.drop("quantity"), on={"id": "customer_id", "country": "country"}).node
    by_names = customers.rename(customer_id="id").join(orders, on=["customer_id", "country"]).node
    assert isinstance(by_pairs, Join)
    assert isinstance(by_names, Join)
    assert by_pairs.on == (JoinKey("id", "customer_id"), JoinKey("country", "country"))
    assert by_names.on == (JoinKey("customer_id", "customer_id"), JoinKey("country", "country"))


def test_two_streams_without_a_bound_become_a_table(orders: Stream, clicks: Stream) -> None:
    assert isinstance(orders.join(clicks, on="order_id", within="forever"), Table)


def test_semi_and_anti_joins_give_the_left_columns_only(orders: Stream) -> None:
    for how in ("semi", "anti"):
        assert orders.join(orders, on="order_id", how=how, within="forever").columns == orders.columns


def test_null_matches_null_only_if_asked(customers: Table, prices: Table) -> None:
    node = customers.join(prices, on="id", nulls_match=True).node
    assert isinstance(node, Join)
    assert node.nulls_match


def test_what_can_be_taken_back(orders: Stream, clicks: Stream, prices: Table) -> None:
    growing = {how: orders.join(clicks, on="order_id", how=how, within="forever").node.shape.retracts for how in KINDS}
    assert growing == {"inner": False, "left": True, "right": True, "full": True, "semi": False, "anti": True}
    assert orders.join(prices, on={"customer_id": "id"}).node.shape.retracts
    assert orders.join(prices, on={"customer_id": "id"}, how="semi").node.shape.retracts
    assert prices.join(clicks, on={"id": "order_id"}).node.shape.retracts


def test_joins_follow_each_other(orders: Stream, customers: Table, prices: Table) -> None:
    named = orders.drop("country").join(customers, on={"customer_id": "id"}, how="left").drop("id")
    priced = named.join(prices, on={"order_id": "id"})
    best = priced.top(10, by="list_price desc", per=["country"])
    assert best.columns is not None
    assert {"name", "list_price", "rank"} <= set(best.columns)


def test_behind_a_map_without_a_schema_the_columns_are_known_at_the_start(orders: Stream, clicks: Stream) -> None:
    joined = orders.map(len).join(clicks, on="order_id", within="forever")
    assert joined.columns is None
    assert orders.join(clicks.map(len), on="order_id", how="anti", within="forever").columns == orders.columns


# -- within a time ----------------------------------------------------------------------------------------------------


def test_two_streams_within_a_time_become_a_stream_with_the_left_time(orders: Stream, clicks: Stream) -> None:
    stream = orders.join(clicks, on="order_id", within="1 hour", how="left")
    assert isinstance(stream, Stream)
    node = stream.node
    assert isinstance(node, TimedJoin)
    assert (node.before, node.after, node.keep) == (0, HOUR, HOUR)
    assert node.shape.columns == (*(orders.columns or ()), "url", "clicked_at")
    assert (node.shape.time, node.shape.key, node.shape.retracts) == ("placed_at", None, True)


def test_partners_may_come_before_and_be_kept_for_longer(orders: Stream, clicks: Stream) -> None:
    node = orders.join(clicks, on="order_id", within="0 seconds", before="5 minutes", keep="1 day").node
    assert isinstance(node, TimedJoin)
    assert (node.before, node.after, node.keep) == (5 * MINUTE, 0, 24 * HOUR)
    assert not node.shape.retracts


@pytest.mark.parametrize(
    ("how", "time"),
    [
        ("inner", "placed_at"),
        ("left", "placed_at"),
        ("right", "clicked_at"),
        ("full", None),
        ("semi", "placed_at"),
        ("anti", "placed_at"),
    ],
)
def test_the_time_is_one_that_every_row_has(orders: Stream, clicks: Stream, how: Any, time: str | None) -> None:
    assert orders.join(clicks, on="order_id", within="1 hour", how=how).node.shape.time == time


def test_a_full_join_has_the_time_that_both_sides_share(orders: Stream, clicks: Stream) -> None:
    clicks = clicks.rename(placed_at="clicked_at")
    both = orders.join(clicks, on=["order_id", "placed_at"], within="0 seconds", how="full")
    assert both.node.shape.time == "placed_at"


def test_a_join_keeps_events_at_least_as_long_as_they_are_corrected(orders: Stream, clicks: Stream) -> None:
    near = orders.join(clicks, on="order_id", within="1 hour", keep="2 hours")
    again = near.join(clicks.rename(second="url", second_at="clicked_at"), on="order_id", within="1 minute")
    assert isinstance(again.node, TimedJoin)
    assert again.node.keep == 3 * HOUR
    with pytest.raises(
        DeclarationError, match="can be corrected for 3 hours, and this join would miss that"
    ) as refused:
        near.join(clicks.select("order_id", at="clicked_at"), on="order_id", within="1 minute", keep="1 hour")
    assert refused.value.hint == "keep it as long: keep='3 hours'"


# -- looking up -------------------------------------------------------------------------------------------------------


def test_events_look_up_what_was_valid_at_their_time(orders: Stream, prices: Table) -> None:
    stream = orders.join(prices, on={"customer_id": "id"}, as_of="placed_at", keep="1 day")
    assert isinstance(stream, Stream)
    node = stream.node
    assert isinstance(node, AsOfJoin)
    assert inputs(node) == (orders.node, prices.node)
    assert (node.how, node.as_of, node.keep) == ("inner", "placed_at", 24 * HOUR)
    columns = (*(orders.columns or ()), "id", "list_price", "since")
    assert node.shape == Shape(columns, time="placed_at", retracts=True)


def test_events_look_up_the_newest_row_and_keep_what_they_found(orders: Stream, customers: Table) -> None:
    newest = orders.drop("country").join(customers, on={"customer_id": "id"}, as_of="now", how="left")
    assert isinstance(newest, Stream)
    assert isinstance(newest.node, AsOfJoin)
    assert (newest.node.as_of, newest.node.how, newest.node.keep) == (None, "left", 0)
    assert not newest.node.shape.retracts
    again = newest.select("order_id", "customer_id").join(customers, on={"customer_id": "id"}, as_of="now")
    assert not again.node.shape.retracts


def test_the_newest_rows_need_no_times(app: App, customers: Table) -> None:
    events = app.topic("untimed", schema="id bigint, what string")
    assert events.join(customers, on="id", as_of="now").columns == ("id", "what", "name", "country")


def test_any_timestamp_of_the_stream_can_be_the_moment(app: App, prices: Table) -> None:
    events = app.topic("events", schema="id bigint, at timestamp, ordered timestamp", time="at")
    node = events.join(prices, on="id", as_of="ordered").node
    assert isinstance(node, AsOfJoin)
    assert (node.as_of, node.shape.time) == ("ordered", "at")


def test_tables_behind_row_by_row_verbs_and_newest_events_have_a_history(orders: Stream, prices: Table) -> None:
    events = orders.select("order_id", "customer_id", "placed_at")
    dear = prices.where("list_price > 10").rename(customer_id="id")
    assert isinstance(events.join(dear, on="customer_id", as_of="placed_at"), Stream)
    last = orders.select("customer_id", last_at="placed_at", last="amount").latest("customer_id")
    assert isinstance(events.join(last, on="customer_id", as_of="placed_at"), Stream)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_mistake_in_a_join_is_told_with_the_users_line(orders: Stream, clicks: Stream) -> None:
    with pytest.raises(DeclarationError) as refused:
        orders.join(clicks, on={"order_id": "order"}, within="forever")
    message = r".*test_joins\.py:\d+: join: on the right side: there is no column 'order'; there are order_id, .*"
    assert re.fullmatch(message, refused.value.message)


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda a, b: a.join(b, within="forever"),
            "on is needed, the columns that must be equal; found none",
            'such as on="order_id"',
        ),
        (lambda a, b: a.join(b, on=None, within="forever"), "on is needed", 'such as on="order_id"'),
        (
            lambda a, b: a.join(b.rename(other_id="order_id"), within="forever"),
            "on is needed",
            'such as on={"left column": "right column"}',
        ),
        (
            lambda a, b: a.join(b, on=3, within="forever"),
            "on is a column, a list of columns, or pairs of them; found 3",
            'on="id", ',
        ),
        (lambda a, b: a.join(b, on=[3], within="forever"), "a column is given by its name; found 3", None),
        (lambda a, b: a.join(b, on={"order_id": 3}, within="forever"), "a column is given by its name; found 3", None),
        (
            lambda a, b: a.join(b, on="oder_id", within="forever"),
            "on the left side: there is no column 'oder_id'",
            "'order_id'?",
        ),
        (
            lambda a, b: a.join(b, on="country", within="forever"),
            "on the right side: there is no column 'country'; there are order_id, url, clicked_at",
            'where the names differ, give both: on={"country": "..."}',
        ),
        (
            lambda a, b: a.join(b, on="url", within="forever"),
            "on the left side: there is no column",
            'give both: on={"...": "url"}',
        ),
        (
            lambda a, b: a.join(b, on="a.order_id = b.order_id", within="forever"),
            "on the left side: there is no",
            "on has names of",
        ),
        (
            lambda a, b: a.join(b, on=["order_id", "order_id"], within="forever"),
            "joined on once; found 'order_id' of the left",
            None,
        ),
        (
            lambda a, b: a.join(b, on={"order_id": "order_id", "customer_id": "order_id"}, within="forever"),
            "joined on once; found 'order_id' of the right side twice",
            None,
        ),
        (
            lambda a, b: a.join(b, on={"country": "order_id"}, within="forever"),
            "same type; 'country' is string on the left, 'order_id' is bigint on the right",
            'cast on the left side: .with_columns(country="cast(country as bigint)")',
        ),
        (
            lambda a, b: b.join(a.drop("order_id"), on={"order_id": "quantity"}, within="forever"),
            "'order_id' is bigint on the left, 'quantity' is int on the right",
            'cast on the right side: .with_columns(quantity="cast(quantity as bigint)")',
        ),
        (
            lambda a, b: a.join(b.rename(Amount="url"), on="order_id", within="forever"),
            "both sides have a column of the same name, which is not joined on; found Amount",
            'rename it on one side, .rename(other_Amount="Amount"), or leave it out, .drop("Amount")',
        ),
        (
            lambda a, b: a.join(a, on="order_id", within="forever"),
            "which is not joined on; found customer_id, country, amount",
            "rename",
        ),
        (
            lambda a, b: a.join(b, on="order_id", how="outer", within="forever"),
            "how is one of 'inner', 'left', .*; found 'outer'",
            None,
        ),
        (
            lambda a, b: a.join(b, on="order_id", nulls_match="yes", within="forever"),
            "nulls_match is True or False; found 'yes'",
            None,
        ),
        (
            lambda a, b: a.join(b, on="order_id", before="1 hour", within="forever"),
            "before has no meaning if both sides",
            "within='1 hour'",
        ),
        (
            lambda a, b: a.join(b, on="order_id", keep="1 hour", within="forever"),
            "keep has no meaning if both sides are kept forever",
            "within=",
        ),
        (lambda a, b: a.join(b, on="order_id", within="soon"), "within: 'soon' is not a duration", "a number and a"),
        (lambda a, b: a.join(b, on="order_id", within=5), "within is a duration in words; found 5", None),
        (lambda a, b: a.join(b, on="order_id", within="-1 hour"), "within cannot be negative", "say before=..."),
        (
            lambda a, b: a.join(b, on="order_id", within="1 hour", before="-1 hour"),
            "before cannot be negative; found '-1 hour'",
            "to look ahead, say within=...",
        ),
        (lambda a, b: a.join(b, on="order_id", within="1 hour", keep="-1 s"), "keep cannot be negative", None),
        (
            lambda a, b: a.join(b.drop("clicked_at"), on="order_id", within="1 hour"),
            "those on the right have none; 'clicked_at' is no longer among the columns",
            "keep the column as it is",
        ),
        (
            lambda a, b: a.drop("placed_at").join(b, on="order_id", within="1 hour"),
            "those on the left have none; 'placed_at' is no longer among the columns",
            None,
        ),
        (lambda a, b: a.join("clicks", on="order_id"), "a stream or a table is needed; found 'clicks'", None),
        (
            lambda a, b: a.join(b.group_by("order_id"), on="order_id"),
            "a stream or a table is needed; found",
            r"end group_by(...) with .agg(...)",
        ),
    ],
)
def test_joins_of_streams_that_make_no_sense_are_refused(
    orders: Stream, clicks: Stream, call: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        call(orders, clicks)
    assert hint is None or hint in (refused.value.hint or "")


def looked_up(events: Stream, table: Table, as_of: str = "placed_at") -> Stream:
    return events.join(table, on={"customer_id": "id"}, as_of=as_of)


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, within="1 hour"),
            "within is for the events of two streams, and one side is a table; found within='1 hour'",
            "as_of=...",
        ),
        (
            lambda a, t: t.join(a, on={"id": "customer_id"}, within="1 hour"),
            "within is for the events of two",
            None,
        ),
        (lambda a, t: t.join(t, on="id", before="1 hour"), "before is for the events of two streams", None),
        (lambda a, t: t.join(t, on="id", keep="1 hour"), "keep is for the events of two streams", None),
        (
            lambda a, t: a.join(t.changes(), on={"customer_id": "id"}, within="1 hour"),
            "within needs events, and table 'prices' has none: it has no watermark",
            "app.topic",
        ),
        (lambda a, t: t.join(t, on="id", as_of="placed_at"), "looks up rows for the events of a stream", "leave it"),
        (lambda a, t: t.join(t, on="id", as_of="now"), "looks up rows for the events of a stream", "leave it"),
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, as_of="placed_at", how="right"),
            "how is one of 'inner', 'left' where rows are looked up; found 'right'",
            None,
        ),
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, as_of="now", within="1 hour"),
            "as_of looks up rows of a table, within bounds the time .*; found as_of='now' and within='1 hour'",
            "leave within out",
        ),
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, as_of="now", nulls_match=True),
            "nulls_match has no mean",
            None,
        ),
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, as_of="now", keep="1 hour"),
            "with as_of='now' nothing is kept for corrections; found keep='1 hour'",
            "as_of",
        ),
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, as_of="placedat"),
            "join: as_of: there is no column 'placedat'",
            "did you mean 'placed_at'?",
        ),
        (
            lambda a, t: a.join(t, on={"customer_id": "id"}, as_of="amount"),
            r"as_of: 'amount' must be a timestamp; found decimal\(10,2\)",
            "as_of='now'",
        ),
        (
            lambda a, t: a.join(t, on={"price": "list_price"}, as_of="placed_at"),
            "by the whole key of the table, which is id; found list_price",
            "leave as_of out",
        ),
        (
            lambda a, t: a.drop("placed_at").join(t, on={"customer_id": "id"}, as_of="placed_at"),
            "as_of needs events with a time, and these have none",
            None,
        ),
        (
            lambda a, t: a.distinct("order_id").join(t, on={"customer_id": "id"}, as_of="now"),
            "these events can be retracted, and what as_of='now' found for them then would be gone",
            "as_of='placed_at'",
        ),
        (lambda a, t: looked_up(a, t.map(len)), "a table has no history after a map", "use where and select"),
        (lambda a, t: a.join(t, on={"customer_id": "id"}, as_of=3), "a moment, or 'now'; found 3", "as_of='now'"),
        (lambda a, t: a.join(t, on={"customer_id": "id"}, as_of=""), "a moment, or 'now'; found ''", "as_of='now'"),
        (lambda a, t: looked_up(a, t.drop("since")), "'since' is no longer among the columns", "keep the column"),
        (lambda a, t: looked_up(a, t.drop("id")), "by the key of a table, and this one has none", "keep the"),
        (
            lambda a, t: looked_up(a, t.drop("id"), "now"),
            "rows are looked up by the key of a table",
            "keep the columns",
        ),
        (
            lambda a, t: looked_up(a, t.group_by("id").agg(n="count(*)")),
            r"only tables of the log and what latest\(...\) gives have a history",
            "as_of='now'",
        ),
        (
            lambda a, t: a.join(a.drop("placed_at"), on="order_id", as_of="placed_at"),
            "as_of looks up rows of a table, and the right side is a stream; found as_of='placed_at'",
            "make it a table, .latest(...), or bound the time",
        ),
        (
            lambda a, t: looked_up(a.rename(now="price"), t, "now"),
            "the stream has a column 'now' too",
            "for the column write as_of='`now`'",
        ),
    ],
)
def test_joins_with_tables_that_make_no_sense_are_refused(
    orders: Stream, prices: Table, call: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        call(orders, prices)
    assert hint is None or hint in (refused.value.hint or "")


def test_a_table_without_times_cannot_say_what_was_valid(app: App, orders: Stream, customers: Table) -> None:
    with pytest.raises(DeclarationError, match="table 'customers' was declared without a time") as refused:
        looked_up(orders, customers)
    assert refused.value.hint == "name the column, time=..., or look up what is known now: as_of='now'"
    untimed = app.topic("untimed", schema="id bigint").latest("id")
    with pytest.raises(DeclarationError, match="the stream it is made of was declared without a time"):
        looked_up(orders, untimed)


def test_a_column_that_is_called_now_is_written_in_backquotes(app: App, prices: Table) -> None:
    events = app.topic("events", schema="id bigint, now timestamp", time="now")
    node = events.join(prices, on="id", as_of="`now`").node
    assert isinstance(node, AsOfJoin)
    assert node.as_of == "now"


def test_two_streams_are_joined_only_if_it_is_said_how_far_apart_their_events_may_be(
    orders: Stream, clicks: Stream
) -> None:
    with pytest.raises(DeclarationError, match="join: say how far apart in time") as refused:
        orders.join(clicks, on="order_id")  # type: ignore[call-overload]
    assert "within='1 hour' gives a stream" in str(refused.value.hint)
    assert "within='forever' gives a table" in str(refused.value.hint)


def test_the_columns_and_the_kind_of_a_join_may_be_given_by_position(orders: Stream, clicks: Stream) -> None:
    by_name = orders.join(clicks, on="order_id", how="left", within="1 hour")
    assert orders.join(clicks, "order_id", "left", within="1 hour") == by_name


def test_moments_of_two_kinds_are_not_compared(app: App, prices: Table) -> None:
    events = app.topic("events", schema="id bigint, at timestamp, local timestamp_ntz", time="at")
    with pytest.raises(DeclarationError, match="'local' is timestamp_ntz, and 'since' of the table is timestamp"):
        events.join(prices, on="id", as_of="local")


def test_a_map_cannot_be_joined_on(app: App) -> None:
    events = app.topic("events", schema="id bigint, tags map<string, string>")
    with pytest.raises(DeclarationError, match="a map cannot be joined on; column 'tags' is one"):
        events.join(events, on="tags", how="semi", within="forever")


def test_answers_of_windows_can_be_joined_and_what_they_group_is_their_key(orders: Stream) -> None:
    counts = orders.window(tumbling("1 minute")).group_by("country").agg(n="count(*)").drop("revision", "window_end")
    sums = orders.window(tumbling("1 minute")).group_by("country").agg(m="sum(amount)").drop("revision", "window_end")
    both = counts.join(sums, on=["country", "window_start"])
    assert both.columns == ("country", "window_start", "n", "m")
    assert both.node.shape.key == ("country", "window_start")
