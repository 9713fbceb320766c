"""GROUP BY, aggregates and HAVING: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

GROUPS: list[tuple[str, Callable[[Any], Any]]] = [
    # groups
    ("SELECT count(*) AS n FROM orders", lambda s: s.orders.group_by().agg(n="count(*)")),
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country",
        lambda s: s.orders.group_by("country").agg(n="count(*)"),
    ),
    (
        "SELECT o.country, sum(o.amount) AS total FROM orders o GROUP BY o.country",
        lambda s: s.orders.group_by("country").agg(total="sum(amount)"),
    ),
    (
        "SELECT count(*) AS n, country AS land FROM orders GROUP BY country",
        lambda s: s.orders.group_by("country").agg(n="count(*)").select(n="n", land="country"),
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY country",
        lambda s: s.orders.group_by("country").agg(n="count(*)").select("n"),
    ),
    (
        "SELECT date(placed_at) AS day, count(*) AS n FROM orders GROUP BY date(placed_at)",
        lambda s: s.orders.group_by(day="date(placed_at)").agg(n="count(*)"),
    ),
    (
        "SELECT date(placed_at) AS day, count(*) AS n FROM orders GROUP BY day",
        lambda s: s.orders.group_by(day="date(placed_at)").agg(n="count(*)"),
    ),
    (
        "SELECT date(placed_at) AS day, country, count(*) AS n FROM orders GROUP BY 1, 2",
        lambda s: s.orders.group_by(day="date(placed_at)", country="country").agg(n="count(*)"),
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY date(placed_at)",
        lambda s: s.orders.group_by(group_1="date(placed_at)").agg(n="count(*)").select("n"),
    ),
    (
        "SELECT year(date(placed_at)) AS year, count(*) AS n FROM orders GROUP BY date(placed_at)",
        lambda s: s.orders.group_by(group_1="date(placed_at)").agg(n="count(*)").select(year="year(group_1)", n="n"),
    ),
    (
        "SELECT country, 'all' AS what, count(*) AS n FROM orders GROUP BY country",
        lambda s: s.orders.group_by("country").agg(n="count(*)").select(country="country", what="'all'", n="n"),
    ),
    (
        "SELECT country FROM customers GROUP BY country",
        lambda s: s.customers.group_by("country").agg(row_count="count(*)").select("country"),
    ),
    # aggregates
    (
        "SELECT country, sum(amount) / count(*) AS mean, count(DISTINCT customer_id) AS n FROM orders GROUP BY country",
        lambda s: s.orders.group_by("country").agg(mean="sum(amount) / count(*)", n="count(DISTINCT customer_id)"),
    ),
    (
        "SELECT country, concat(country, max(amount)) AS text FROM orders GROUP BY country",
        lambda s: s.orders.group_by("country").agg(text="concat(country, max(amount))"),
    ),
    (
        "SELECT country, count(*) FILTER (WHERE o.amount > 9) AS n FROM orders o GROUP BY country",
        lambda s: s.orders.group_by("country").agg(n="count(*) FILTER (WHERE amount > 9)"),
    ),
    (
        "SELECT sum(amount) AS amount FROM orders WHERE country = 'DE'",
        lambda s: s.orders.where("country = 'DE'").group_by().agg(amount="sum(amount)"),
    ),
    (
        "SELECT max(country) AS country, country AS land FROM orders GROUP BY country",
        lambda s: (
            s.orders.group_by("country").agg(country_1="max(country)").select(country="country_1", land="country")
        ),
    ),
    # HAVING
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country HAVING count(*) > 3",
        lambda s: s.orders.group_by("country").agg(n="count(*)").where("n > 3"),
    ),
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country HAVING n > 3 AND country <> 'DE'",
        lambda s: s.orders.group_by("country").agg(n="count(*)").where("n > 3 AND country <> 'DE'"),
    ),
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country HAVING sum(amount) > 3",
        lambda s: (
            s.orders.group_by("country")
            .agg(n="count(*)", aggregate_1="sum(amount)")
            .where("aggregate_1 > 3")
            .select("country", "n")
        ),
    ),
    (
        "SELECT country AS land, count(*) AS n FROM orders GROUP BY country HAVING land <> 'DE'",
        lambda s: s.orders.group_by("country").agg(n="count(*)").where("country <> 'DE'").select(land="country", n="n"),
    ),
    (
        "SELECT amount + order_id AS s, count(*) AS n FROM orders GROUP BY amount, order_id HAVING s * 2 > 10",
        lambda s: (
            s.orders.group_by("amount", "order_id")
            .agg(n="count(*)")
            .where("(amount + order_id) * 2 > 10")
            .select(s="amount + order_id", n="n")
        ),
    ),
    (
        "SELECT max(amount) AS amount FROM orders HAVING max(amount) > 3 AND amount < 9",
        lambda s: s.orders.group_by().agg(amount="max(amount)").where("amount > 3 AND amount < 9"),
    ),
    (
        "SELECT country AS land, count(*) AS country FROM orders GROUP BY land HAVING country > 5",
        lambda s: s.orders.group_by(land="country").agg(country="count(*)").where("country > 5"),
    ),
    (
        "SELECT rank AS r, count(*) AS n FROM (SELECT amount AS rank FROM orders) GROUP BY rank HAVING r > 1",
        lambda s: (
            s.orders.select(rank="amount").group_by("rank").agg(n="count(*)").where("rank > 1").select(r="rank", n="n")
        ),
    ),
    # expressions that are grouped by, said again
    (
        "SELECT count(*) AS n FROM orders GROUP BY amount + 1 HAVING amount + 1 > 2 AND 2 * (amount + 1) < 9",
        lambda s: (
            s.orders.group_by(group_1="amount + 1")
            .agg(n="count(*)")
            .where("group_1 > 2 AND 2 * (group_1) < 9")
            .select("n")
        ),
    ),
    (
        "SELECT order_id % 2 = 0 AS even, count(*) AS n FROM orders GROUP BY order_id % 2",
        lambda s: s.orders.group_by(group_1="order_id % 2").agg(n="count(*)").select(even="group_1 = 0", n="n"),
    ),
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY (country)",
        lambda s: s.orders.group_by("country").agg(n="count(*)"),
    ),
    (
        "SELECT `country`, upper(`country`) AS u, count(*) AS n FROM orders GROUP BY `country`, upper(country)",
        lambda s: s.orders.group_by(country="country", u="upper(country)").agg(n="count(*)"),
    ),
    (
        "SELECT amount AS customer_id, customer_id + 1 AS next, count(*) AS n FROM orders GROUP BY 1, customer_id",
        lambda s: (
            s.orders.group_by(customer_id="amount", group_1="customer_id")
            .agg(n="count(*)")
            .select(customer_id="customer_id", next="group_1 + 1", n="n")
        ),
    ),
    (
        "SELECT DISTINCT n FROM (SELECT country, count(*) AS n FROM orders GROUP BY country)",
        lambda s: s.orders.group_by("country").agg(n="count(*)").group_by("n").agg(row_count="count(*)").select("n"),
    ),
]


@pytest.mark.parametrize(("query", "python"), GROUPS, ids=[query for query, _ in GROUPS])
def test_groups_become_the_plan_of_the_verbs(
    query: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    same(query, python)


REFUSED = [
    (
        "SELECT count(*) AS n FROM orders GROUP BY amount + 1 HAVING 2 * amount + 1 > 2",
        "column 'amount' is used outside of an aggregate, and the rows are grouped by amount + 1",
        "'amount + 1' can be said as a whole, or by its name in the list",
    ),
    (
        (
            "SELECT count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id "
            "GROUP BY c.country || 'x' HAVING c.country > 'a'"
        ),
        "column 'c.country' is used outside of an aggregate, and the rows are grouped by c.country || 'x'",
        "max(c.country)",
    ),
    (
        "SELECT lowr(upper(country)) AS x, count(*) AS n FROM orders GROUP BY upper(country)",
        "select: Spark has no function 'lowr'; found 'lowr(upper(country))'",
        "did you mean 'lower'?",
    ),
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country HAVING window(n) > 1",
        "having: windows are made in GROUP BY; found 'window(n)'",
        None,
    ),
    (
        "SELECT country, count(*) AS n FROM orders GROUP BY country HAVING sum(n) > 1",
        "having: there is no column 'n'",
        None,
    ),
    (
        "SELECT country, amount FROM orders GROUP BY country",
        "column 'amount' is used outside of an aggregate",
        "GROUP BY",
    ),
    (
        (
            "SELECT upper(country) AS country, concat(country, 'x') AS x, count(*) AS n FROM orders "
            "GROUP BY upper(country)"
        ),
        "column 'country' is used outside of an aggregate",
        "GROUP BY",
    ),
    (
        "SELECT upper(country) AS country, concat(country, max(amount)) AS x FROM orders GROUP BY upper(country)",
        "column 'country' is used outside of an aggregate",
        "GROUP BY",
    ),
    ("SELECT country, count(*) FROM orders GROUP BY country", "an expression needs a name", "count(*) AS name"),
    ("SELECT *, count(*) AS n FROM orders GROUP BY country", "'*' is not supported with GROUP BY", "name the columns"),
    ("SELECT sum(max(amount)) AS x FROM orders", "an aggregate is inside another", "two steps"),
    ("SELECT count(*) AS n FROM orders GROUP BY 3", "the list has no item 3", None),
    ("SELECT count(*) AS n FROM orders GROUP BY ROLLUP (country)", "ROLLUP is not supported", "UNION ALL"),
    ("SELECT count(*) AS n FROM orders GROUP BY CUBE (country)", "CUBE is not supported", "UNION ALL"),
    (
        "SELECT count(*) AS n FROM orders GROUP BY GROUPING SETS ((country))",
        "GROUPING SETS is not supported",
        "UNION ALL",
    ),
    ("SELECT count(*) AS n FROM orders GROUP BY ALL", "GROUP BY ALL is not supported", "name the columns"),
    ("SELECT count(*) AS n FROM orders GROUP BY sum(amount)", "an aggregate is not allowed here", None),
    ("SELECT count(*) AS n FROM orders GROUP BY country, , amount", "is missing between the commas", None),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_what_cannot_be_grouped_is_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
