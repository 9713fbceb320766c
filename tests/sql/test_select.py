"""WHERE, UNION ALL, WITH, subqueries and table functions: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import DeclarationError

ROWS: list[tuple[str, Callable[[Any], Any]]] = [
    # rows
    ("SELECT * FROM orders WHERE amount > 100", lambda s: s.orders.where("amount > 100")),
    (
        "SELECT * FROM orders o WHERE o.amount > 100 AND o.country = 'DE'",
        lambda s: s.orders.where("amount > 100 AND country = 'DE'"),
    ),
    (
        "SELECT order_id FROM orders WHERE amount BETWEEN 1 AND 2 OR country IN ('DE', 'FR')",
        lambda s: s.orders.where("amount BETWEEN 1 AND 2 OR country IN ('DE', 'FR')").select("order_id"),
    ),
    ("SELECT name FROM customers WHERE id > 3", lambda s: s.customers.where("id > 3").select("name")),
    # several queries
    (
        "SELECT search_id, at FROM searches UNION ALL SELECT search_id, at FROM clicks",
        lambda s: s.searches.select("search_id", "at").union(s.clicks.select("search_id", "at")),
    ),
    (
        "SELECT * FROM searches UNION ALL SELECT * FROM clicks UNION ALL (SELECT * FROM searches)",
        lambda s: s.searches.union(s.clicks.select(search_id="search_id", words="url", at="at"), s.searches),
    ),
    (
        (
            "WITH large AS (SELECT * FROM orders WHERE amount > 9), "
            "german AS (SELECT * FROM large WHERE country = 'DE') "
            "SELECT order_id FROM german"
        ),
        lambda s: s.orders.where("amount > 9").where("country = 'DE'").select("order_id"),
    ),
    (
        "SELECT l.order_id FROM (SELECT * FROM orders WHERE amount > 9) AS l",
        lambda s: s.orders.where("amount > 9").select("order_id"),
    ),
    # table functions
    ("SELECT * FROM changes(customers)", lambda s: s.customers.changes()),
    ("SELECT c.id, change FROM changes(customers) c", lambda s: s.customers.changes().select("id", "change")),
    ("SELECT * FROM latest(orders, customer_id, country)", lambda s: s.orders.latest("customer_id", "country")),
]


@pytest.mark.parametrize(("query", "python"), ROWS, ids=[query for query, _ in ROWS])
def test_a_query_becomes_the_plan_of_the_verbs(
    query: str, python: Callable[[Any], Any], same: Callable[..., None]
) -> None:
    same(query, python)


def test_rows_whose_columns_are_not_known_yet_are_read_by_name(declared: Callable[[], Any]) -> None:
    app = declared().app
    mapped = app.named["orders"].map(lambda rows: rows)
    app.view("mapped", mapped)
    assert app.sql("SELECT * FROM mapped WHERE anything > 1").node == mapped.where("anything > 1").node
    assert app.sql("SELECT m.anything FROM mapped m").node == mapped.select("anything").node
    with pytest.raises(DeclarationError, match="are not known yet") as refused:
        app.sql(
            "SELECT m.order_id FROM mapped m LEFT JOIN orders o ON m.order_id = o.order_id WHERE o.order_id IS NULL"
        )
    assert refused.value.hint == "give map a schema; or USING (order_id), if it may be one column"


def test_a_view_that_is_read_by_name_is_the_same_node(declared: Callable[[], Any]) -> None:
    app = declared().app
    large = app.sql("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 9")
    assert app.sql("SELECT * FROM large").node is large.node
    app.view("small", app.sql("SELECT order_id, amount FROM orders").where("amount < 1"))
    assert app.sql("SELECT * FROM small").columns == ("order_id", "amount")


REFUSED = [
    ("SELECT amount * 2 FROM orders", "an expression needs a name; found 'amount * 2'", "amount * 2 AS name"),
    ("SELECT * FROM orders WHERE sum(amount) > 3", "an aggregate is not allowed in WHERE", "HAVING"),
    ("SELECT * FROM orders WHERE rand() > 0.5", "must not depend on when or where", "store the value"),
    ("SELECT * FROM orders WHERE amount >", "where: Spark SQL cannot read this expression", None),
    (
        "SELECT * FROM orders UNION ALL SELECT * FROM customers",
        "a stream cannot be united with a table",
        "changes(table)",
    ),
    (
        "SELECT order_id FROM orders UNION ALL SELECT country FROM orders",
        "columns that are united must have the same type; 'order_id' is a number, 'country' a text",
        "CAST(country AS ...) AS country",
    ),
    ("SELECT order_id FROM orders UNION ALL SELECT * FROM orders", "have as many columns; the first has 1", None),
    ("SELECT * FROM tumble(orders)", "windows are made in GROUP BY; found tumble(...) in FROM", "window(time"),
    (
        "SELECT * FROM latst(orders, country)",
        "there are changes(table) and latest(stream, key)",
        "did you mean 'latest'?",
    ),
    ("SELECT * FROM latest(customers, id)", "takes a stream; 'customers' is a table", None),
    ("SELECT * FROM latest(orders)", "needs the columns of the key", None),
    ("SELECT * FROM changes(orders)", "changes(table) takes one table", None),
    ("SELECT * FROM orders EMIT FINAL", "EMIT is of windows, and there is none", "GROUP BY window("),
    ("SELECT * FROM orders LATE DROP", "LATE is of windows, and there is none", "GROUP BY window("),
    ("SELECT * FROM orders KEEP '1 hour'", "KEEP is of windows and of joins in time", "forever"),
    ("SELECT * FROM orders WITHIN '1 hour'", "WITHIN says how far DISTINCT looks back", "BETWEEN"),
    ("SELECT * FROM orders HAVING amount > 1", "HAVING needs GROUP BY or an aggregate", "a condition on rows is WHERE"),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_other_queries_are_refused_with_what_to_write_instead(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)


def test_a_mistake_is_told_with_its_line(refused: Callable[[str], DeclarationError]) -> None:
    error = refused("SELECT\n  order_id,\n  amonut\nFROM orders")
    assert ": line 3: select: there is no column 'amonut'" in error.message
    error = refused("SELECT *\nFROM orders\n-- a comment\nWHERE country = 'DE'\n  AND amonut > 3")
    assert ": line 5: where: there is no column 'amonut'" in error.message
    error = refused("SELECT *\nFROM orders\nORDER BY amount")
    assert ": line 3: select: ORDER BY is not supported" in error.message
