"""GROUP BY, aggregates, windows and HAVING: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import hopping, session, sliding, tumbling
from penstock.errors import DeclarationError

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

WINDOWS: list[tuple[str, Callable[[Any], Any]]] = [
    ("window(placed_at, '10 seconds')", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, '10 seconds', '10 seconds')", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL 10 SECONDS)", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL '10' SECOND)", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL '10 seconds')", lambda s: s.orders.window(tumbling("10 seconds"))),
    ("window(placed_at, INTERVAL 1 MINUTE 30 SECONDS)", lambda s: s.orders.window(tumbling("90 seconds"))),
    ("window(placed_at, '10 seconds', '2 seconds')", lambda s: s.orders.window(hopping("10 seconds", "2 seconds"))),
    (
        "window(placed_at, '10 seconds', '2 seconds', '1 second')",
        lambda s: s.orders.window(hopping("10 seconds", "2 seconds", offset="1 second")),
    ),
    (
        "window(placed_at, '1 day', zone => 'Europe/Berlin')",
        lambda s: s.orders.window(tumbling("1 day", zone="Europe/Berlin")),
    ),
    (
        "window(placed_at, '1 hour', offset => '15 minutes')",
        lambda s: s.orders.window(tumbling("1 hour", offset="15 minutes")),
    ),
    ("session_window(placed_at, '10 seconds')", lambda s: s.orders.window(session("10 seconds"))),
    ("sliding_window(placed_at, '10 minutes')", lambda s: s.orders.window(sliding("10 minutes"))),
    ("window(placed_at, '1 hour') EMIT FINAL", lambda s: s.orders.window(tumbling("1 hour"))),
    ("window(placed_at, '1 hour') EMIT CHANGES", lambda s: s.orders.window(tumbling("1 hour"), emit="changes")),
    ("window(placed_at, '1 hour') LATE CORRECT", lambda s: s.orders.window(tumbling("1 hour"))),
    (
        "window(placed_at, '1 hour') LATE DROP EMIT CHANGES",
        lambda s: s.orders.window(tumbling("1 hour"), emit="changes", late="drop"),
    ),
    ("window(placed_at, '1 hour') KEEP '2 days'", lambda s: s.orders.window(tumbling("1 hour"), keep="2 days")),
]


@pytest.mark.parametrize(("query", "python"), GROUPS, ids=[query for query, _ in GROUPS])
def test_groups_become_the_plan_of_the_verbs(
    query: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    same(query, python)


@pytest.mark.parametrize(("clause", "python"), WINDOWS, ids=[clause for clause, _ in WINDOWS])
def test_windows_become_the_plan_of_the_verbs(
    clause: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    same(
        f"SELECT window_start, window_end, revision, count(*) AS n FROM orders GROUP BY {clause}",
        lambda shop: python(shop).group_by().agg(n="count(*)"),
    )


def test_the_window_is_asked_for_its_start_and_end(same: Callable[..., None]) -> None:
    by_country = "FROM orders GROUP BY window(placed_at, '1 hour'), country"
    chosen = {"begin": "window_start", "until": "window_end", "country": "country", "n": "n"}

    def python(shop: Any) -> Any:
        return shop.orders.window(tumbling("1 hour")).group_by("country").agg(n="count(*)").select(**chosen)

    same(f"SELECT window.start AS begin, window.end AS until, country, count(*) AS n {by_country}", python)
    same(f"SELECT window_start AS begin, window_end AS until, country, count(*) AS n {by_country}", python)
    same(
        "SELECT session_window.start AS s, count(*) AS n FROM orders GROUP BY session_window(placed_at, '1 hour')",
        lambda shop: shop.orders.window(session("1 hour")).group_by().agg(n="count(*)").select(s="window_start", n="n"),
    )


def test_the_window_may_stand_beside_aggregates(same: Callable[..., None]) -> None:
    same(
        "SELECT count(*) / date_diff(SECOND, window.start, window.end) AS rate "
        "FROM orders GROUP BY window(placed_at, '1 hour')",
        lambda shop: (
            shop.orders.window(tumbling("1 hour"))
            .group_by()
            .agg(aggregate_1="count(*)")
            .select(rate="aggregate_1 / date_diff(SECOND, window_start, window_end)")
        ),
    )


def test_windows_are_windowed_again(same: Callable[..., None]) -> None:
    same(
        "SELECT window.start AS day, max(n) AS most "
        "FROM (SELECT window_end, count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour')) "
        "GROUP BY window(window_end, '1 day')",
        lambda shop: (
            shop.orders.window(tumbling("1 hour"))
            .group_by()
            .agg(n="count(*)")
            .select("window_end", "n")
            .window(tumbling("1 day"))
            .group_by()
            .agg(most="max(n)")
            .select(day="window_start", most="most")
        ),
    )


REFUSED = [
    (
        "SELECT count(*) AS n FROM orders GROUP BY amount + 1 HAVING 2 * amount + 1 > 2",
        "column 'amount' stands outside of an aggregate, and it is grouped by amount + 1",
        "'amount + 1' can be said as a whole, or by its name in the list",
    ),
    (
        (
            "SELECT count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id "
            "GROUP BY c.country || 'x' HAVING c.country > 'a'"
        ),
        "column 'c.country' stands outside of an aggregate, and it is grouped by c.country || 'x'",
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
        "column 'amount' stands outside of an aggregate",
        "GROUP BY",
    ),
    (
        (
            "SELECT upper(country) AS country, concat(country, 'x') AS x, count(*) AS n FROM orders "
            "GROUP BY upper(country)"
        ),
        "column 'country' stands outside of an aggregate",
        "GROUP BY",
    ),
    (
        "SELECT upper(country) AS country, concat(country, max(amount)) AS x FROM orders GROUP BY upper(country)",
        "column 'country' stands outside of an aggregate",
        "GROUP BY",
    ),
    ("SELECT country, count(*) FROM orders GROUP BY country", "an expression needs a name", "count(*) AS name"),
    ("SELECT *, count(*) AS n FROM orders GROUP BY country", "'*' is not there behind GROUP BY", "name the columns"),
    ("SELECT sum(max(amount)) AS x FROM orders", "an aggregate stands inside another", "two steps"),
    ("SELECT count(*) AS n FROM orders GROUP BY 3", "the list has no item 3", None),
    ("SELECT count(*) AS n FROM orders GROUP BY ROLLUP (country)", "ROLLUP is not there", "UNION ALL"),
    ("SELECT count(*) AS n FROM orders GROUP BY CUBE (country)", "CUBE is not there", "UNION ALL"),
    ("SELECT count(*) AS n FROM orders GROUP BY GROUPING SETS ((country))", "GROUPING SETS is not there", "UNION ALL"),
    ("SELECT count(*) AS n FROM orders GROUP BY ALL", "GROUP BY ALL is not there", "name the columns"),
    ("SELECT count(*) AS n FROM orders GROUP BY sum(amount)", "an aggregate is not allowed here", None),
    ("SELECT count(*) AS n FROM orders GROUP BY country, , amount", "is missing between the commas", None),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY window(url, '1 hour')",
        "windows go by the event time, which is 'at'; found 'url'",
        "window(at, ...)",
    ),
    (
        (
            "SELECT count(*) AS n FROM searches s RIGHT JOIN clicks c ON s.search_id = c.search_id "
            "AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR GROUP BY window(s.at, '1 day')"
        ),
        "windows go by the event time, which is 'c.at'; found 's.at'",
        "window(c.at, ...)",
    ),
    ("SELECT count(*) AS n FROM stores GROUP BY window(store, '1 hour')", "table 'stores' has none", "app.topic("),
    ("SELECT count(*) AS n FROM orders GROUP BY window(placed_at)", "window needs a size", "'10 seconds'"),
    ("SELECT count(*) AS n FROM orders GROUP BY window(placed_at, 'soon')", "'soon' is not a duration", "a number and"),
    (
        "SELECT count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour', zon => 'x')",
        "window takes time, size",
        "zone",
    ),
    ("SELECT count(*) AS n FROM orders GROUP BY window(placed_at, INTERVAL 1 MONTH)", "is not a duration", None),
    (
        "SELECT count(*) AS n FROM orders GROUP BY tumble(placed_at, '1 hour')",
        "TUMBLE(...) is not there",
        "window(time",
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour'), session_window(placed_at, '1 hour')",
        "there is one window in GROUP BY",
        "a query around",
    ),
    (
        "SELECT window, count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour')",
        "a window is asked for its parts",
        "window.start, window.end",
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY window(placed_at, '1 hour') LATE DROP KEEP '1 hour'",
        "with late='drop' nothing is kept",
        None,
    ),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_what_cannot_be_grouped_is_refused(
    query: str, message: str, hint: str | None, refused: Callable[[str], DeclarationError]
) -> None:
    error = refused(query)
    assert message in error.message
    assert (hint is None) or (error.hint is not None and hint in error.hint)
