"""What is known of a column before anything runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import App, Stream, Table, event_time, sliding, tumbling
from penstock.flow.columns import column_of, never_null

MOMENT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("verb", "name", "type_"),
    [
        (lambda rows: rows, "amount", pa.decimal128(10, 2)),
        (lambda rows: rows.where("price > 1").distinct("order_id"), "price", pa.float64()),
        (lambda rows: rows.rename(number="order_id"), "number", pa.int64()),
        (lambda rows: rows.select(double="price", sum="price + 1"), "double", pa.float64()),
        (lambda rows: rows.select(double="price", sum="price + 1"), "sum", None),
        (lambda rows: rows.map(len), "order_id", None),
        (lambda rows: rows.map(len, schema="score float"), "score", pa.float32()),
        (lambda rows: rows.map(len, schema="score float").rename(points="score"), "points", pa.float32()),
        (lambda rows: rows.map(len).with_columns(a="b"), "b", None),
        (lambda rows: rows.latest("order_id").changes(), "country", pa.string()),
        (lambda rows: rows.latest("order_id").changes(), "change", pa.string()),
        (lambda rows: rows.top(3, by="price"), "rank", pa.int32()),
        (lambda rows: rows.top(3, by="price"), "quantity", pa.int32()),
        (lambda rows: rows.union(rows.where("price > 1")), "price", pa.float64()),
        (lambda rows: rows.union(rows.with_columns(price="quantity")), "price", None),
        (lambda rows: rows.group_by("country", day="date(placed_at)").agg(n="count(*)"), "country", pa.string()),
        (lambda rows: rows.group_by("country", day="date(placed_at)").agg(n="count(*)"), "day", None),
        (lambda rows: rows.group_by("country").agg(n="count(*)"), "n", None),
        (lambda rows: rows.window(tumbling("1 minute")).group_by().agg(n="count(*)"), "window_start", MOMENT),
        (lambda rows: rows.window(sliding("1 minute")).group_by().agg(n="count(*)"), "revision", pa.int64()),
        (
            lambda rows: rows.join(rows.select("order_id", p="price"), on="order_id", within="forever"),
            "p",
            pa.float64(),
        ),
        (lambda rows: rows.join(rows, on="order_id", how="semi", within="forever"), "price", pa.float64()),
    ],
)
def test_a_column_is_followed_back_to_its_schema(orders: Stream, verb: Any, name: str, type_: Any) -> None:
    found = column_of(verb(orders).node, name)
    assert (None if found is None else found.type) == type_


def test_a_corrected_time_is_a_timestamp(app: App) -> None:
    schema = "a bigint, at timestamp, sent_at timestamp"
    events = app.topic("t", schema=schema, time=event_time("at", sent="sent_at"))
    assert column_of(events.node, "event_time") == pa.field("event_time", MOMENT, nullable=False)


def test_what_a_join_leaves_out_is_null(customers: Table, orders: Stream) -> None:
    bought = orders.select("order_id", "customer_id")
    expected = {"inner": (True, True), "left": (False, True), "right": (True, False), "full": (False, False)}
    for how, found in expected.items():
        node = customers.join(bought, on={"id": "customer_id"}, how=how).node
        assert (never_null(node, "order_id"), never_null(node, "id")) == found
    assert not never_null(customers.map(len, schema="id bigint not null").node, "id")
    assert not never_null(customers.node, "name")


def test_unions_of_unions_are_looked_at_once(orders: Stream) -> None:
    grown = orders
    for _ in range(40):  # two paths each time: 2**40 of them
        grown = grown.union(grown.where("price > 1"))
    assert never_null(grown.node, "order_id")
