"""What is said about the state of each node."""

from __future__ import annotations

from penstock import Stream, Table, hopping, session, sliding
from penstock.flow.describe_state import describe_state


def test_the_state_of_every_node_is_described(orders: Stream, customers: Table) -> None:
    by_country = orders.group_by("country")
    expected = {
        orders.drop("tags"): None,
        orders.map(len): None,
        orders.union(orders): None,
        customers: "one row per id, until it is deleted",
        customers.changes(): None,
        orders.distinct("order_id", within="1 hour"): "the rows of the last 1 hour",
        orders.distinct("order_id", "country"): "the first row per order_id, country, for ever",
        orders.latest("customer_id"): "one row per customer_id, for ever",
        orders.top(3, by="price"): "rows, for ever",
        orders.group_by().agg(n="count(*)"): "accumulators, for ever",
        by_country.agg(n="max(price) - min(price)"): "accumulators per country, for ever",
        by_country.agg(n="count(distinct price)"): "accumulators and different values per country, for ever",
        by_country.agg(n="approx_count_distinct(price)"): "accumulators and sketches per country, for ever",
        by_country.agg(n="hll_sketch_agg(quantity)", m="count(distinct price)"): (
            "accumulators, sketches and different values per country, for ever"
        ),
        by_country.agg(n="sum(distinct price)"): "rows per country, for ever",
        by_country.agg(n="approx_percentile(price, 0.5)"): "rows per country, for ever",
        by_country.agg(n="median(price)"): "rows per country, for ever",
        customers.group_by("country").agg(n="approx_count_distinct(name)"): "rows per country, for ever",
        orders.window(session("1 minute")).group_by("country").agg(n="theta_sketch_agg(quantity)"): (
            "rows per country and session, until 1 hour after its end"
        ),
        customers.group_by("country").agg(n="max(name)"): "rows per country, for ever",
        customers.group_by("country").agg(n="count(*)"): "accumulators per country, for ever",
        orders.window(session("1 minute"), late="drop").group_by("country", "quantity").agg(n="count(*)"): (
            "accumulators per country, quantity and session, until its end"
        ),
        orders.window(sliding("5 minutes")).group_by("country").agg(n="count(*)"): (
            "rows per country, until 1 hour after they are 5 minutes old"
        ),
        orders.join(customers.drop("country"), on={"customer_id": "id"}): (
            "rows of both sides per customer_id = id, for ever"
        ),
        orders.join(orders, on=["order_id", "country"], how="anti"): (
            "rows of both sides per order_id and country, for ever"
        ),
        orders.join(orders, on="order_id", within="1 hour", how="semi"): (
            "events of both sides per order_id, until 2 hours after they happened"
        ),
        orders.join(orders, on="order_id", within="1 hour", before="1 hour", how="semi"): (
            "events of both sides per order_id, until 4 hours after they happened"
        ),
        orders.join(customers.drop("country").latest(), on={"customer_id": "id"}): (
            "one row per id, until it is deleted"
        ),
        orders.window(hopping("1 day", "1 hour"), keep="1 week").group_by().agg(n="count(*)"): (
            "accumulators per window, until 1 week after its end"
        ),
    }
    assert {rows: describe_state(rows.node) for rows in expected} == expected
