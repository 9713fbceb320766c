"""The SELECT list and DISTINCT: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

COLUMNS: list[tuple[str, Callable[[Any], Any]]] = [
    # columns
    ("SELECT * FROM orders", lambda s: s.orders),
    ("SELECT o.* FROM orders o", lambda s: s.orders),
    ("SELECT order_id, country FROM orders", lambda s: s.orders.select("order_id", "country")),
    ("SELECT country, order_id FROM orders", lambda s: s.orders.select("country", "order_id")),
    ("SELECT order_id AS id FROM orders", lambda s: s.orders.select(id="order_id")),
    ("SELECT `order_id` AS `an id` FROM orders", lambda s: s.orders.select(**{"an id": "order_id"})),
    ("SELECT ALL order_id FROM orders", lambda s: s.orders.select("order_id")),
    ("SELECT amount * 2 AS twice FROM orders", lambda s: s.orders.select(twice="amount * 2")),
    ("SELECT amount * 2 twice FROM orders", lambda s: s.orders.select(twice="amount * 2")),
    ("SELECT *, amount * 2 AS twice FROM orders", lambda s: s.orders.with_columns(twice="amount * 2")),
    ("SELECT upper(country) AS country FROM orders", lambda s: s.orders.select(country="upper(country)")),
    ("SELECT o.address.city AS city FROM orders AS o", lambda s: s.orders.select(city="address.city")),
    ("SELECT address.city FROM orders", lambda s: s.orders.select(city="address.city")),
    (
        "SELECT extract(year FROM placed_at) AS year FROM orders",
        lambda s: s.orders.select(year="extract(year FROM placed_at)"),
    ),
    (
        "SELECT country IS DISTINCT FROM 'DE' AS abroad FROM orders",
        lambda s: s.orders.select(abroad="country IS DISTINCT FROM 'DE'"),
    ),
    (
        "SELECT CASE WHEN amount > 9 THEN 'much' END size FROM orders",
        lambda s: s.orders.select(size="CASE WHEN amount > 9 THEN 'much' END"),
    ),
    (
        "SELECT transform(array(1), o -> o + 1) AS x FROM orders",
        lambda s: s.orders.select(x="transform(array(1), o -> o + 1)"),
    ),
    # DISTINCT
    ("SELECT DISTINCT * FROM orders", lambda s: s.orders.distinct()),
    ("SELECT DISTINCT country FROM orders", lambda s: s.orders.select("country").distinct()),
    (
        "SELECT DISTINCT country, placed_at FROM orders WITHIN '1 hour'",
        lambda s: s.orders.select("country", "placed_at").distinct(within="1 hour"),
    ),
    (
        "SELECT DISTINCT ON (order_id) * FROM orders WITHIN INTERVAL 1 HOUR",
        lambda s: s.orders.distinct("order_id", within="1 hour"),
    ),
    (
        "SELECT DISTINCT ON (order_id) order_id, placed_at FROM orders",
        lambda s: s.orders.select("order_id", "placed_at").distinct("order_id"),
    ),
    (
        "SELECT DISTINCT ON (o.order_id) o.country FROM orders o",
        lambda s: s.orders.distinct("order_id").select("country"),
    ),
    (
        "SELECT DISTINCT country, upper(name) AS called FROM customers",
        lambda s: (
            s.customers.group_by("country", called="upper(name)").agg(row_count="count(*)").select("country", "called")
        ),
    ),
]


@pytest.mark.parametrize(("query", "python"), COLUMNS, ids=[query for query, _ in COLUMNS])
def test_a_list_becomes_the_plan_of_the_verbs(
    query: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    same(query, python)


def test_distinct_takes_a_column_by_the_name_that_the_list_gives_it(same: Callable[..., None]) -> None:
    same(
        "SELECT DISTINCT ON (o.order_id) order_id AS id, placed_at FROM orders o",
        lambda s: s.orders.select(id="order_id", placed_at="placed_at").distinct("id"),
    )
    same(
        "SELECT DISTINCT ON (day) date(placed_at) AS day, placed_at FROM orders",
        lambda s: s.orders.select(day="date(placed_at)", placed_at="placed_at").distinct("day"),
    )
    same(
        "SELECT DISTINCT ON (id) order_id AS id FROM orders",
        lambda s: s.orders.distinct("order_id").select(id="order_id"),
    )


REFUSED = [
    ("SELECT amount AS x, country AS X FROM orders", "two columns would have the name 'X'", "rename one of them"),
    ("SELECT DISTINCT ON (id) * FROM customers", "DISTINCT with ON is of streams", "ROW_NUMBER()"),
    ("SELECT DISTINCT ON (upper(country)) * FROM orders", "DISTINCT ON has names of columns", "in a query inside"),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_other_lists_are_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
