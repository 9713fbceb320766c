"""What is told about a plan."""

from __future__ import annotations

import json

import pytest

from penstock import App, Stream, event_time, hopping, tumbling
from penstock.flow.explain import document, explain


def test_the_graph_is_printed_from_the_sources_to_the_views(app: App, orders: Stream) -> None:
    revenue = (
        orders.where("amount > 0")
        .window(tumbling("1 minute"))
        .group_by("country")
        .agg(revenue="sum(amount)", orders="count(*)")
    )
    app.view("revenue", revenue)
    app.view("best", revenue.top(3, by="revenue desc, country", per=["window_start"]))
    lines = explain(app.plan).splitlines()
    assert lines[0] == "app shop"
    heads = [line for line in lines if line[:1].isdigit()]
    assert heads == [
        "1. topic orders",
        "2. where amount > 0  <- 1",
        (
            "3. window tumbling 1 minute, emit final, late correct, by country: "
            "revenue = sum(amount), orders = count(*)  <- 2"
        ),
        "4. top 3 by revenue desc, country per window_start  <- 3",
    ]
    states = [line.split(maxsplit=1)[1] for line in lines if line.startswith("     state")]
    assert states == [
        "the highest event time of each producer",
        "none",
        "accumulators per country and window, until 1 hour after its end",
        "rows per window_start, forever",
    ]
    assert lines[-2].startswith("view revenue  <- 3")
    assert lines[-1].startswith("view best  <- 4")


def test_how_far_the_time_is_trusted_is_told(app: App) -> None:
    schema = "a bigint, at timestamp, sent_at timestamp"
    app.view(
        "v", app.topic("t", schema=schema, time=event_time("at", sent="sent_at", lateness="5 seconds", idle="1 minute"))
    )
    time = next(line for line in explain(app.plan).splitlines() if line.startswith("     time"))
    assert time == (
        "     time     at, corrected by when it was stored - sent_at; up to 5 seconds late, idle after 1 minute, "
        "at most 10 minutes ahead"
    )


@pytest.mark.parametrize(
    ("verb", "head"),
    [
        (lambda rows: rows.select("order_id", total="price * 2"), "select order_id, total = price * 2"),
        (lambda rows: rows.map(len).with_columns(a="b + 1"), "select all without a, a = b + 1"),
        (lambda rows: rows.map(len), "map len"),
        (lambda rows: rows.union(rows), "union of 2"),
        (lambda rows: rows.latest("order_id"), "latest per order_id"),
        (lambda rows: rows.latest("order_id").changes(), "changes added and removed rows"),
        (lambda rows: rows.distinct("order_id", within="1 hour"), "distinct order_id within 1 hour"),
        (
            lambda rows: rows.join(rows, on=["order_id", "country"], how="anti", within="forever"),
            "join anti on order_id, country",
        ),
        (
            lambda rows: rows.join(
                rows, on={"order_id": "customer_id"}, how="semi", nulls_match=True, within="forever"
            ),
            "join semi on order_id = customer_id, nulls match",
        ),
        (
            lambda rows: rows.join(rows, on="order_id", how="semi", within="1 hour", before="5 minutes"),
            "join semi on order_id within 1 hour, from 5 minutes before",
        ),
        (
            lambda rows: rows.join(
                rows.select("order_id", at="placed_at").latest("order_id"), on="order_id", as_of="now"
            ),
            "join inner on order_id, the newest row",
        ),
        (lambda rows: rows.group_by().agg(n="count(*)"), "group all: n = count(*)"),
        (
            lambda rows: (
                rows.window(hopping("1 day", "1 day", offset="6 hours", zone="UTC")).group_by().agg(n="sum(price)")
            ),
            "window hopping 1 day every 1 day from 6 hours in UTC, emit final, late correct, all: n = sum(price)",
        ),
    ],
)
def test_every_node_is_told_in_a_few_words(app: App, orders: Stream, verb: object, head: str) -> None:
    app.view("v", verb(orders))  # type: ignore[operator]
    head_line = [line for line in explain(app.plan).splitlines() if line[:1].isdigit()][-1]
    assert head_line.split(". ", 1)[1].split("  <-")[0] == head


def test_a_join_with_what_was_valid_tells_which_moment_and_how_long_it_is_corrected(app: App, orders: Stream) -> None:
    prices = app.table("prices", schema="id bigint, list double, since timestamp", key="id", time="since")
    app.view("v", orders.join(prices, on={"customer_id": "id"}, as_of="placed_at", how="left", keep="1 day"))
    lines = explain(app.plan).splitlines()
    assert "3. join left on customer_id = id, as of placed_at  <- 1, 2" in lines
    kept = "one row per id, until it is deleted"
    versions = "its versions and the events that looked it up, until 1 day after placed_at"
    assert f"     state    {kept}; {versions}" in lines


def test_the_document_says_the_same_for_programs(app: App, orders: Stream) -> None:
    app.view("counts", orders.group_by("country").agg(n="count(*)"))
    explained = document(app.plan)
    assert json.loads(json.dumps(explained)) == explained
    assert explained["app"] == "shop"
    nodes = explained["nodes"]
    assert isinstance(nodes, list)
    assert [(node["number"], node["kind"], node["reads"]) for node in nodes] == [(1, "topic", []), (2, "group", [1])]
    assert nodes[1]["key"] == ["country"]
    assert nodes[1]["state"] == "accumulators per country, forever"
    assert len(nodes[1]["fingerprint"]) == 16
    views = explained["views"]
    assert isinstance(views, list)
    assert (views[0]["name"], views[0]["node"]) == ("counts", 2)


def test_an_app_without_views_is_empty(app: App) -> None:
    assert explain(app.plan) == "app shop\n\nno views"
