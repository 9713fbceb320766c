"""Nodes are the same as long as they say the same, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from penstock import App, Stream, Table, tumbling
from penstock.flow.fingerprint import fingerprint

PROGRAM = """
from penstock import App, tumbling
from penstock.flow.fingerprint import fingerprint

FACTORS = {"a": 1.5, "b": 2}
KNOWN = {"x", "y", "z", "u", "v", "w"}

def scaled(rows):
    return rows.where(rows.b.isin({"one", "two", "three", "four"})) if KNOWN else helper(rows, FACTORS)

def helper(rows, factors):
    return rows.limit(len(factors))

app = App("shop")
topic = app.topic("orders", schema="a bigint, b string, t timestamp", key="a", time="t")
app.view("v", topic.map(scaled).window(tumbling("1 minute")).group_by("b").agg(n="count(*)"))
print(fingerprint(app.plan.views[0].node))
"""


def printed(program: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return shown.stdout.strip()


def test_the_same_program_has_the_same_fingerprint_in_every_process() -> None:
    first = printed(PROGRAM, "1")
    assert len(first) == 16
    assert {printed(PROGRAM, seed) for seed in ("2", "3")} == {first}
    assert printed("\n\n" + PROGRAM, "1") == first


def test_a_change_in_what_a_function_uses_changes_the_fingerprint() -> None:
    first = printed(PROGRAM, "1")
    for old, new in (("1.5", "1.6"), ('"four"', '"for"'), ("len(factors)", "len(factors) + 1"), ('"w"', '"q"')):
        assert printed(PROGRAM.replace(old, new), "1") != first


def test_where_it_was_declared_does_not_matter(orders: Stream) -> None:
    first = orders.where("amount > 1")
    second = orders.where("amount > 1")
    assert first.node.location != second.node.location
    assert fingerprint(first.node) == fingerprint(second.node)


def test_everything_else_matters(app: App, orders: Stream, customers: Table) -> None:
    windowed = orders.window(tumbling("1 minute")).group_by("country")
    prices = app.table("prices", schema="id bigint, since timestamp", key="id", time="since")
    different = [
        orders,
        customers,
        orders.where("amount > 1"),
        orders.where("amount > 2"),
        orders.where("amount > 1").where("amount > 2"),
        orders.where("amount > 2").where("amount > 1"),
        orders.drop("tags"),
        orders.union(orders),
        orders.union(orders, orders),
        orders.distinct("order_id"),
        orders.distinct("order_id", within="1 hour"),
        orders.latest("order_id"),
        orders.top(1, by="price"),
        orders.top(1, by="price desc"),
        orders.top(1, by="price", ties="keep"),
        customers.changes(),
        windowed.agg(n="count(*)"),
        windowed.agg(m="count(*)"),
        orders.window(tumbling("1 minute"), keep="2 hours").group_by("country").agg(n="count(*)"),
        orders.group_by("country").agg(n="count(*)"),
        orders.join(customers.drop("country"), on={"customer_id": "id"}),
        orders.join(customers.drop("country"), on={"order_id": "id"}),
        orders.join(customers.drop("country"), on={"customer_id": "id"}, how="left"),
        orders.join(customers.drop("country"), on={"customer_id": "id"}, nulls_match=True),
        orders.join(customers.drop("country"), on={"customer_id": "id"}, as_of="now"),
        orders.join(customers.drop("country"), on={"customer_id": "id"}, as_of="now", how="left"),
        customers.join(orders.drop("country"), on={"id": "customer_id"}),
        orders.join(orders, on="order_id", how="semi", within="forever"),
        orders.join(orders, on="order_id", how="semi", within="1 hour"),
        orders.join(orders, on="order_id", how="semi", within="2 hours"),
        orders.join(orders, on="order_id", how="semi", within="1 hour", before="1 hour"),
        orders.join(orders, on="order_id", how="semi", within="1 hour", keep="2 hours"),
        orders.join(prices, on={"customer_id": "id"}, as_of="placed_at"),
        orders.join(prices, on={"customer_id": "id"}, as_of="now"),
        App("other").topic("orders", schema="order_id bigint").where("order_id > 1"),
    ]
    assert len({fingerprint(rows.node) for rows in different}) == len(different)


def test_a_node_that_many_read_from_is_worked_out_once(orders: Stream) -> None:
    grown = orders
    for _ in range(40):  # two paths each time: 2**40 of them
        grown = grown.union(grown)
    assert len(fingerprint(grown.node)) == 16


def test_a_join_of_a_join_with_itself_is_worked_out_once(orders: Stream) -> None:
    grown = orders
    for _ in range(40):
        grown = grown.join(grown, on="order_id", how="semi", within="1 hour")
    assert len(fingerprint(grown.node)) == 16


def test_the_way_a_join_is_written_does_not_discard_the_state_of_apps_that_have_run() -> None:
    """The fingerprints are those of earlier versions, which wrote `table.as_of(...)` and `table.latest()`."""
    app = App("shop")
    columns = "order_id bigint, customer_id bigint, amount double, placed_at timestamp"
    orders = app.topic("orders", schema=columns, key="order_id", time="placed_at")
    clicks = app.topic("clicks", schema="order_id bigint, page string, clicked_at timestamp", time="clicked_at")
    customers = app.table("customers", schema="id bigint, name string, since timestamp", key="id", time="since")
    on = {"customer_id": "id"}
    known = {
        "ca520a67507586fa": orders.join(customers, on=on, how="left", as_of="placed_at", keep="1 day"),
        "e4d32edf5c8596ea": orders.join(customers, on=on, as_of="now"),
        "6aa75754c7e9a977": orders.join(clicks, on="order_id", how="left", within="forever"),
        "c3075a431a4eadca": orders.join(clicks, on="order_id", within="1 hour"),
        "9d89c4b1b3b7a8c6": orders.join(customers, on=on),
        "445aef8419633399": orders.agg(n="count(*)"),
        "3059baf065790efe": orders.window(tumbling("1 minute")).agg(n="count(*)"),
    }
    assert {fingerprint(rows.node): rows for rows in known.values()} == known


def test_sql_and_python_say_the_same_join() -> None:
    app = App("shop")
    orders = app.topic("orders", schema="order_id bigint, customer_id bigint, at timestamp", time="at")
    clicks = app.topic("clicks", schema="click_id bigint, page string, clicked_at timestamp", time="clicked_at")
    customers = app.table("customers", schema="id bigint, name string, since timestamp", key="id", time="since")
    pairs = {
        "customers FOR SYSTEM_TIME AS OF o.at ON o.customer_id = id": orders.join(
            customers, on={"customer_id": "id"}, as_of="at"
        ),
        "customers FOR SYSTEM_TIME AS OF LATEST ON o.customer_id = id": orders.join(
            customers, on={"customer_id": "id"}, as_of="now"
        ),
        "clicks WITHIN FOREVER ON order_id = click_id": orders.join(
            clicks, on={"order_id": "click_id"}, within="forever"
        ),
        "clicks WITHIN '1 hour' ON order_id = click_id": orders.join(
            clicks, on={"order_id": "click_id"}, within="1 hour"
        ),
    }
    for text, rows in pairs.items():
        written = app.sql(f"SELECT * FROM orders o JOIN {text}")
        assert not isinstance(written, str)
        assert fingerprint(written.node) == fingerprint(rows.node), text
