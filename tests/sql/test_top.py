"""ROW_NUMBER() and RANK() with a bound: each beside the verb `top`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import tumbling

BY_COUNTRY = "ROW_NUMBER() OVER (PARTITION BY country ORDER BY amount DESC, order_id)"


def top(shop: Any, count: int = 3, **options: Any) -> Any:
    return shop.orders.top(count, by="amount desc, order_id", per=["country"], **options)


RANKS: list[tuple[str, Callable[[Any], Any]]] = [
    (f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} <= 3", lambda s: top(s).select("order_id")),
    (f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} < 4", lambda s: top(s).select("order_id")),
    (f"SELECT order_id FROM orders QUALIFY 3 >= {BY_COUNTRY}", lambda s: top(s).select("order_id")),
    (f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} = 1", lambda s: top(s, 1).select("order_id")),
    (f"SELECT * FROM orders QUALIFY {BY_COUNTRY} <= 3", lambda s: top(s).drop("rank")),
    (
        f"SELECT order_id, {BY_COUNTRY} AS place FROM orders QUALIFY place <= 3",
        lambda s: top(s).select(order_id="order_id", place="rank"),
    ),
    (
        f"SELECT order_id, {BY_COUNTRY} AS place FROM orders QUALIFY {BY_COUNTRY.lower()} <= 3",
        lambda s: top(s).select(order_id="order_id", place="rank"),
    ),
    (
        f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} <= 3 AND amount > 9",
        lambda s: top(s).where("amount > 9").select("order_id"),
    ),
    (
        "SELECT order_id FROM orders QUALIFY RANK() OVER (PARTITION BY country ORDER BY amount DESC, order_id) <= 3",
        lambda s: top(s, ties="keep").select("order_id"),
    ),
    (
        (
            "SELECT order_id FROM orders QUALIFY ROW_NUMBER() OVER (ORDER BY amount DESC NULLS LAST, "
            "country NULLS FIRST) <= 3"
        ),
        lambda s: s.orders.top(3, by="amount desc, country").select("order_id"),
    ),
    (
        (
            "SELECT order_id FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY date(placed_at) ORDER "
            "BY abs(amount) DESC) = 1"
        ),
        lambda s: (
            s.orders.with_columns(group_1="date(placed_at)")
            .top(1, by="abs(amount) desc", per=["group_1"])
            .select("order_id")
        ),
    ),
    # names of the list
    (
        (
            "SELECT amount * 2 AS d, order_id FROM orders QUALIFY "
            "ROW_NUMBER() OVER (PARTITION BY d ORDER BY d DESC, order_id) <= 3 AND d > 4"
        ),
        lambda s: (
            s.orders.with_columns(group_1="(amount * 2)")
            .top(3, by="(amount * 2) desc, order_id", per=["group_1"])
            .where("(amount * 2) > 4")
            .select(d="amount * 2", order_id="order_id")
        ),
    ),
    (
        "SELECT -amount AS amount, order_id FROM orders QUALIFY ROW_NUMBER() OVER (ORDER BY amount, order_id) <= 3",
        lambda s: s.orders.top(3, by="(-amount), order_id").select(amount="-amount", order_id="order_id"),
    ),
    (
        (
            "SELECT -amount AS amount, country AS land, ROW_NUMBER() OVER (PARTITION BY land ORDER BY amount) AS rn "
            "FROM orders QUALIFY rn <= 3"
        ),
        lambda s: s.orders.top(3, by="amount", per=["country"]).select(amount="-amount", land="country", rn="rank"),
    ),
    (
        (
            "SELECT amount > 9 OR order_id > 9 AS large, order_id FROM orders "
            "QUALIFY ROW_NUMBER() OVER (ORDER BY order_id) <= 3 AND large AND order_id > 4"
        ),
        lambda s: (
            s.orders.top(3, by="order_id")
            .where("(amount > 9 OR order_id > 9) AND order_id > 4")
            .select(large="amount > 9 OR order_id > 9", order_id="order_id")
        ),
    ),
    # in a query around it
    (
        f"SELECT order_id, rn FROM (SELECT *, {BY_COUNTRY} AS rn FROM orders) WHERE rn <= 3",
        lambda s: (
            top(s)
            .select("order_id", "customer_id", "country", "amount", "address", "placed_at", rn="rank")
            .select("order_id", "rn")
        ),
    ),
    (
        (
            f"SELECT * FROM (SELECT order_id, country, {BY_COUNTRY} AS rn FROM orders) t "
            "WHERE country <> 'DE' AND t.rn = 1 AND order_id > 3"
        ),
        lambda s: top(s, 1).select("order_id", "country", rn="rank").where("country <> 'DE' AND order_id > 3"),
    ),
    (
        f"WITH ranked AS (SELECT order_id, {BY_COUNTRY} AS rn FROM orders) SELECT order_id FROM ranked WHERE rn <= 3",
        lambda s: top(s).select("order_id", rn="rank").select("order_id"),
    ),
    (
        f"SELECT order_id FROM (SELECT order_id, {BY_COUNTRY} AS rn FROM orders) WHERE rn >= 2 AND rn <= 3",
        lambda s: top(s).select("order_id", rn="rank").where("rn >= 2").select("order_id"),
    ),
    # behind groups
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC) <= 3",
        lambda s: s.orders.group_by("country").agg(n="count(*)").top(3, by="n desc").select("country", "n"),
    ),
    (
        (
            "SELECT country, window.end AS until FROM orders GROUP BY window(placed_at, '1 hour'), country "
            "QUALIFY RANK() OVER (PARTITION BY window.end ORDER BY sum(amount) DESC) = 1"
        ),
        lambda s: (
            s.orders.window(tumbling("1 hour"))
            .group_by("country")
            .agg(aggregate_1="sum(amount)")
            .top(1, by="aggregate_1 desc", per=["window_end"], ties="keep")
            .select(country="country", until="window_end")
        ),
    ),
]


@pytest.mark.parametrize(("query", "python"), RANKS, ids=[query for query, _ in RANKS])
def test_a_bounded_rank_becomes_top(query: str, python: Callable[[Any], Any], same: Callable[..., None]) -> None:
    same(query, python)


REFUSED = [
    (f"SELECT order_id, {BY_COUNTRY} AS rn FROM orders", "a rank needs a bound, and 'rn' has none", "WHERE rn <= n"),
    (
        f"SELECT order_id FROM (SELECT order_id, {BY_COUNTRY} AS rn FROM orders) WHERE order_id > 1",
        "a rank needs a bound",
        "QUALIFY rn <= n",
    ),
    (f"SELECT order_id, {BY_COUNTRY} FROM orders QUALIFY {BY_COUNTRY} = 1", "a rank needs a name", "AS position"),
    (f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} = 2", "the first ranks are kept", "<= n, < n or = 1"),
    (f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} > 2", "the first ranks are kept", "<= n, < n or = 1"),
    (f"SELECT order_id FROM orders QUALIFY {BY_COUNTRY} <= amount", "compared with a whole number", None),
    ("SELECT order_id FROM orders QUALIFY amount > 3", "QUALIFY bounds a rank; found 'amount > 3'", "ROW_NUMBER()"),
    (
        f"SELECT order_id, {BY_COUNTRY} AS a FROM orders QUALIFY RANK() OVER (ORDER BY amount) = 1",
        "there is one ranking in a SELECT",
        "a query around",
    ),
    (
        "SELECT order_id FROM orders QUALIFY DENSE_RANK() OVER (ORDER BY amount) <= 3",
        "DENSE_RANK() is not supported",
        "RANK()",
    ),
    ("SELECT order_id FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY country) <= 3", "expected ORDER BY", None),
    (
        "SELECT order_id FROM orders QUALIFY ROW_NUMBER() OVER (ORDER BY amount DESC NULLS FIRST) <= 3",
        "nulls are the smallest values; found 'amount DESC NULLS FIRST'",
        "coalesce",
    ),
    (
        (
            "SELECT order_id FROM orders QUALIFY ROW_NUMBER() OVER (ORDER BY amount ROWS BETWEEN 1 "
            "PRECEDING AND CURRENT ROW) = 1"
        ),
        "leave out what follows ORDER BY",
        None,
    ),
    (
        "SELECT order_id FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY contry ORDER BY amount) = 1",
        "partition by: there is no column 'contry'",
        "did you mean 'country'?",
    ),
    (
        "SELECT sum(amount) OVER (PARTITION BY country) AS x FROM orders",
        "ROW_NUMBER() and RANK(), with a bound",
        "QUALIFY",
    ),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_other_ranks_are_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
