"""Joins: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Stream, Table
from penstock.errors import DeclarationError


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("LEFT", "left"),
        ("LEFT OUTER", "left"),
        ("RIGHT", "right"),
        ("FULL OUTER", "full"),
        ("RIGHT OUTER", "right"),
        ("FULL", "full"),
    ],
)
def test_outer_joins_keep_the_columns_of_both_sides_apart(words: str, how: str, same: Callable[..., None]) -> None:
    same(
        f"SELECT s.search_id AS searched, c.search_id AS clicked FROM searches s {words} JOIN clicks c "
        "ON s.search_id = c.search_id AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR KEEP '1 day'",
        lambda shop: shop.searches.join(
            shop.clicks.rename(c_search_id="search_id", c_at="at"),
            on={"search_id": "c_search_id"},
            how=how,
            within="1 hour",
            keep="1 day",
        ).select(searched="search_id", clicked="c_search_id"),
    )


def renamed(shop: Any) -> Any:
    return shop.customers.rename(c_country="country")


JOINS: list[tuple[str, Callable[[Any], Any]]] = [
    # tables, and streams without a time
    (
        "SELECT o.order_id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id",
        lambda s: s.orders.join(renamed(s), on={"customer_id": "id"}).select("order_id", "name"),
    ),
    (
        "SELECT o.order_id, c.country FROM orders o INNER JOIN customers c ON c.id = o.customer_id",
        lambda s: s.orders.join(renamed(s), on={"customer_id": "id"}).select(order_id="order_id", country="c_country"),
    ),
    (
        "SELECT order_id, name FROM orders LEFT JOIN customers ON customer_id = id",
        lambda s: s.orders.join(
            s.customers.rename(customers_country="country"), on={"customer_id": "id"}, how="left"
        ).select("order_id", "name"),
    ),
    (
        "SELECT o.order_id, c.name FROM orders o JOIN customers c ON o.customer_id <=> c.id",
        lambda s: s.orders.join(renamed(s), on={"customer_id": "id"}, nulls_match=True).select("order_id", "name"),
    ),
    (
        "SELECT order_id FROM orders o LEFT SEMI JOIN customers c ON o.customer_id = c.id",
        lambda s: s.orders.join(s.customers, on={"customer_id": "id"}, how="semi").select("order_id"),
    ),
    (
        "SELECT * FROM orders o LEFT ANTI JOIN customers c ON o.customer_id = c.id AND c.country = 'DE'",
        lambda s: s.orders.join(s.customers.where("country = 'DE'"), on={"customer_id": "id"}, how="anti"),
    ),
    # several columns, USING
    (
        "SELECT order_id, store FROM orders JOIN stores USING (customer_id, country)",
        lambda s: s.orders.join(s.stores, on=["customer_id", "country"]).select("order_id", "store"),
    ),
    (
        "SELECT * FROM stores s JOIN stores_by_name n USING (store)",
        lambda s: s.stores.join(s.stores.select(store="store", label="upper(store)"), on="store"),
    ),
    (
        "SELECT customer_id, store, order_id FROM orders FULL JOIN stores USING (customer_id, country)",
        lambda s: s.orders.join(s.stores, on=["customer_id", "country"], how="full").select(
            "customer_id", "store", "order_id"
        ),
    ),
    (
        (
            "SELECT o.order_id, s.store FROM orders o JOIN stores s ON o.customer_id = s.customer_id "
            "AND o.country = s.country"
        ),
        lambda s: s.orders.join(s.stores, on=["customer_id", "country"]).select("order_id", "store"),
    ),
    # expressions that are equal
    (
        "SELECT o.order_id, c.name FROM orders o JOIN customers c ON o.customer_id % 10 = c.id",
        lambda s: (
            s.orders.with_columns(key_1="customer_id % 10")
            .join(renamed(s), on={"key_1": "id"})
            .select("order_id", "name")
        ),
    ),
    (
        (
            "SELECT o.order_id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id AND "
            "lower(c.country) = o.country"
        ),
        lambda s: s.orders.join(
            s.customers.with_columns(key_1="lower(country)").rename(c_country="country"),
            on={"customer_id": "id", "country": "key_1"},
        ).select("order_id", "name"),
    ),
    # other conditions
    (
        (
            "SELECT o.order_id FROM orders o JOIN customers c "
            "ON o.customer_id = c.id AND o.amount > 9 AND c.name <> 'x' AND o.country <> c.country"
        ),
        lambda s: (
            s.orders.where("amount > 9")
            .join(s.customers.where("name <> 'x'").rename(c_country="country"), on={"customer_id": "id"})
            .where("country <> c_country")
            .select("order_id")
        ),
    ),
    (
        "SELECT o.order_id, c.name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id AND c.country = 'DE'",
        lambda s: s.orders.join(
            s.customers.where("country = 'DE'").rename(c_country="country"), on={"customer_id": "id"}, how="left"
        ).select("order_id", "name"),
    ),
    (
        "SELECT o.order_id, c.name FROM orders o RIGHT JOIN customers c ON o.customer_id = c.id AND o.amount > 9",
        lambda s: (
            s.orders.where("amount > 9")
            .join(renamed(s), on={"customer_id": "id"}, how="right")
            .select("order_id", "name")
        ),
    ),
    (
        "SELECT s.search_id FROM searches s JOIN clicks c WITHIN FOREVER ON s.search_id = c.search_id AND c.at >= s.at",
        lambda s: (
            s.searches.join(s.clicks.rename(c_at="at"), on="search_id", within="forever")
            .where("c_at >= at")
            .select("search_id")
        ),
    ),
    (
        "SELECT search_id FROM searches s LEFT JOIN clicks c WITHIN INTERVAL 5 MINUTES USING (search_id)",
        lambda s: s.searches.join(s.clicks.rename(c_at="at"), on="search_id", how="left", within="5 minutes").select(
            "search_id"
        ),
    ),
    (
        "SELECT o.order_id FROM orders o JOIN stores s ON o.customer_id = s.customer_id AND o.customer_id = s.country",
        lambda s: (
            s.orders.join(s.stores.rename(s_country="country"), on="customer_id")
            .where("customer_id = s_country")
            .select("order_id")
        ),
    ),
    # a table as of a time
    (
        (
            "SELECT o.order_id, c.name FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.placed_at AS c "
            "ON o.customer_id = c.id"
        ),
        lambda s: s.orders.join(renamed(s), on={"customer_id": "id"}, as_of="placed_at").select("order_id", "name"),
    ),
    (
        (
            "SELECT o.order_id, c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF o.placed_at c "
            "ON o.customer_id = c.id KEEP '1 day'"
        ),
        lambda s: s.orders.join(
            renamed(s), on={"customer_id": "id"}, as_of="placed_at", how="left", keep="1 day"
        ).select("order_id", "name"),
    ),
    (
        "SELECT o.order_id, c.name FROM orders o JOIN customers FOR SYSTEM_TIME AS OF LATEST c ON o.customer_id = c.id",
        lambda s: s.orders.join(renamed(s), on={"customer_id": "id"}, as_of="now").select("order_id", "name"),
    ),
    # chains
    (
        (
            "SELECT o.order_id, c.name, s.store FROM orders o JOIN customers c ON o.customer_id = c.id "
            "JOIN stores s ON c.country = s.country"
        ),
        lambda s: (
            s.orders.join(renamed(s), on={"customer_id": "id"})
            .join(s.stores.rename(s_country="country", s_customer_id="customer_id"), on={"c_country": "s_country"})
            .select("order_id", "name", "store")
        ),
    ),
    (
        "SELECT a.name AS one, b.name AS other FROM customers a JOIN customers b ON a.country = b.country",
        lambda s: s.customers.join(s.customers.rename(b_id="id", b_name="name", b_since="since"), on="country").select(
            one="name", other="b_name"
        ),
    ),
    (
        "SELECT c.country, count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.country",
        lambda s: (
            s.orders.join(renamed(s), on={"customer_id": "id"})
            .group_by("c_country")
            .agg(n="count(*)")
            .select(country="c_country", n="n")
        ),
    ),
]


@pytest.mark.parametrize(("query", "python"), JOINS, ids=[query for query, _ in JOINS])
def test_a_join_becomes_the_plan_of_the_verbs(
    query: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    by_name = "WITH stores_by_name AS (SELECT store, upper(store) AS label FROM stores) "
    same((by_name if "stores_by_name" in query else "") + query, python)


def test_a_join_in_time_gives_a_stream_and_one_without_a_table(declared: Callable[[], Any]) -> None:
    app = declared().app
    query = "SELECT s.search_id FROM searches s JOIN clicks c {} ON s.search_id = c.search_id {}"
    assert isinstance(app.sql(query.format("WITHIN FOREVER", "")), Table)
    assert isinstance(app.sql(query.format("WITHIN '1 hour'", "")), Stream)
    assert isinstance(app.sql(query.format("", "AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR")), Stream)


@pytest.mark.parametrize("one_end", ["", " AND c.at >= s.at"])
def test_two_streams_are_joined_only_if_sql_says_how_far_apart_their_events_may_be(
    declared: Callable[[], Any], one_end: str
) -> None:
    with pytest.raises(DeclarationError, match="join: say how far apart in time") as refused:
        declared().app.sql(f"SELECT s.search_id FROM searches s JOIN clicks c ON s.search_id = c.search_id{one_end}")
    assert refused.value.hint == (
        "c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR in ON gives a stream and keeps events for an hour; "
        "JOIN c WITHIN FOREVER gives a table and keeps both streams forever"
    )


def test_all_columns_of_a_join_are_there_with_the_names_of_the_user(declared: Callable[[], Any]) -> None:
    app = declared().app
    found = app.sql(
        "SELECT * FROM customers c JOIN (SELECT store, customer_id FROM stores) s ON c.id % 7 = s.customer_id"
    )
    assert found.columns == ("id", "name", "country", "since", "store", "customer_id")
    using = app.sql(
        "SELECT * FROM (SELECT store, country FROM stores) s "
        "JOIN (SELECT name, country FROM customers) c USING (country)"
    )
    assert using.columns == ("country", "store", "name")
    left = app.sql("SELECT s.* FROM stores s JOIN customers c ON s.country = c.country")
    assert left.columns == ("store", "country", "customer_id")


def test_a_new_name_of_a_column_does_not_meet_another(declared: Callable[[], Any]) -> None:
    app = declared().app
    app.table("odd", schema="id bigint, country string, o_country string, o_country_1 string", key="id")
    found = app.sql("SELECT c.id, o.country, o_country FROM customers c JOIN odd o ON c.id = o.id")
    assert found.columns == ("id", "country", "o_country")
    assert [column.expression for column in found.node.columns] == ["id", "o_country_2", "o_country"]


ON = "FROM orders o JOIN customers c ON o.customer_id = c.id"
REFUSED = [
    (f"SELECT country {ON}", "'country' is a column of several tables", "o.country or c.country"),
    (f"SELECT * {ON}", "'*' would have two columns 'country'", "AS other_country"),
    (f"SELECT o.order_id {ON} AND country = 'DE'", "'country' is a column of several tables", "o.country or c.country"),
    ("SELECT order_id FROM orders, customers", "tables are not joined with a comma", "JOIN t ON"),
    ("SELECT order_id FROM orders CROSS JOIN customers", "CROSS JOIN is not supported", "JOIN t ON"),
    ("SELECT order_id FROM orders NATURAL JOIN customers", "NATURAL JOIN is not supported", "USING (id)"),
    ("SELECT order_id FROM orders o JOIN LATERAL (SELECT 1) x ON 1 = 1", "LATERAL is not supported", ".map("),
    ("SELECT order_id FROM orders JOIN customers", "a join needs ON or USING", "USING (id)"),
    (
        "SELECT order_id FROM orders o JOIN customers c ON o.customer_id > c.id",
        "needs columns that are equal",
        "ON a.id",
    ),
    (
        "SELECT order_id FROM orders JOIN orders ON order_id = order_id",
        "two tables have the name 'orders'",
        "AS other_",
    ),
    ("SELECT order_id FROM orders o JOIN customers c USING (id)", "there is no column 'id'", None),
    (
        "SELECT order_id FROM orders o JOIN stores s ON o.customer_id = s.customer_id AND o.country <=> s.country",
        "either all columns are compared with = or all with <=>",
        None,
    ),
    (
        "SELECT order_id FROM orders o LEFT JOIN customers c ON o.customer_id = c.id AND o.amount > 9",
        (
            "ON of a LEFT JOIN takes equalities, bounds of time on both ends, "
            "and conditions on the right side alone; "
            "found: o.amount > 9"
        ),
        "WHERE",
    ),
    (
        "SELECT order_id FROM orders o FULL JOIN customers c ON o.customer_id = c.id AND c.country = 'DE'",
        "ON of a FULL JOIN takes equalities, bounds of time on both ends; found: c.country = 'DE'",
        "WHERE",
    ),
    (
        "SELECT order_id FROM orders o LEFT ANTI JOIN customers c ON o.customer_id = c.id AND c.country <> o.country",
        "ON of a LEFT ANTI JOIN",
        "WHERE",
    ),
    (
        "SELECT s.search_id FROM searches s LEFT JOIN clicks c ON s.search_id = c.search_id AND c.at >= s.at",
        "bounds of time on both ends",
        None,
    ),
    (
        (
            "SELECT s.search_id FROM searches s JOIN clicks c ON s.search_id = c.search_id "
            "AND c.at BETWEEN s.at + INTERVAL 1 HOUR AND s.at + INTERVAL 2 HOURS"
        ),
        "include the same moment on both sides, and these leave it out",
        "put the narrower condition into WHERE",
    ),
    (
        "SELECT o.order_id FROM stores o LEFT JOIN customers c USING (country) WHERE c.country IS NULL",
        "after USING there is only one 'country' and not that of 'c' alone",
        "join with ON",
    ),
    (
        "SELECT c.* FROM stores o LEFT JOIN customers c USING (country)",
        "after USING there is only one 'country' and not that of 'c' alone",
        "join with ON",
    ),
    (
        "SELECT o.order_id FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.country c ON o.customer_id = c.id",
        "as_of: 'country' must be a timestamp",
        None,
    ),
    (
        "SELECT o.order_id FROM orders o JOIN clicks FOR SYSTEM_TIME AS OF o.placed_at c ON o.order_id = c.search_id",
        "looks up rows of a table, and this is a stream",
        "latest(stream, key)",
    ),
    (
        "SELECT o.order_id FROM orders o JOIN customers FOR VERSION AS OF 3 c ON o.customer_id = c.id",
        "FOR VERSION is not supported",
        "FOR SYSTEM_TIME AS OF",
    ),
    (
        "SELECT * FROM customers FOR SYSTEM_TIME AS OF LATEST",
        "belongs to a table that is joined",
        None,
    ),
    (
        "SELECT o.order_id FROM orders o LEFT JOIN customers c ON o.customer_id = c.country",
        "have the same type; 'o.customer_id' is bigint on the left, 'c.country' is string on the right",
        "ON CAST(o.customer_id AS string) = ...",
    ),
    (
        "SELECT o.order_id FROM orders o JOIN customers FOR SYSTEM_TIME AS OF LATEST AS c ON o.country = c.country",
        "looked up by the whole key of the table, which is id; found c.country",
        "without FOR SYSTEM_TIME",
    ),
    (
        "SELECT o.order_id FROM orders o JOIN customers c ON o.customer_id = c.id KEEP '1 hour'",
        "KEEP is of windows and of joins in time, and there is none",
        None,
    ),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_a_join_that_is_not_there_is_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
