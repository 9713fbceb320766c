"""SELECT, WHERE, DISTINCT, UNION ALL, WITH and subqueries: each beside the Python verbs that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import DeclarationError

ROWS: list[tuple[str, Callable[[Any], Any]]] = [
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


def test_columns_may_have_the_names_of_clauses(declared: Callable[[], Any]) -> None:
    app = declared().app
    odd = app.topic("odd", schema="late boolean, keep int, emit int, window int, `from` int, limit int")
    found = app.sql("SELECT keep, window AS late, `from`, limit FROM odd WHERE late AND keep > emit AND limit = 1")
    chosen = odd.where("late AND keep > emit AND limit = 1").select(
        keep="keep", late="window", limit="limit", **{"from": "`from`"}
    )
    assert set(found.columns) == set(chosen.columns)
    assert found.node.input == chosen.node.input


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
    ("SELECT amonut FROM orders", "select: there is no column 'amonut'", "did you mean 'amount'?"),
    ("SELECT Amount FROM orders", "select: there is no column 'Amount'", "did you mean 'amount'?"),
    ("SELECT o.amonut FROM orders o", "'o' has no column 'amonut'", "did you mean 'amount'?"),
    ("SELECT x.amount FROM orders o", "there is no table and no column 'x'", None),
    ("SELECT amount FROM ordres", "there is no topic, table or view 'ordres'", "did you mean 'orders'?"),
    ("SELECT amount * 2 FROM orders", "an expression needs a name; found 'amount * 2'", "amount * 2 AS name"),
    ("SELECT amount AS x, country AS X FROM orders", "two columns would have the name 'X'", "name one otherwise"),
    ("SELECT amount", "FROM is missing", None),
    ("SELECT , amount FROM orders", "an item is missing between the commas", None),
    ("SELECT * EXCEPT (amount) FROM orders", "'*' stands alone", "name the columns"),
    ("SELECT summ(amount) AS x FROM orders", "Spark has no function 'summ'", "did you mean 'sum'?"),
    ("SELECT amount AS 'x' FROM orders", "a name is expected behind AS", "in backquotes"),
    ("SELECT * FROM orders WHERE sum(amount) > 3", "an aggregate cannot stand in WHERE", "HAVING"),
    ("SELECT * FROM orders WHERE rand() > 0.5", "must not depend on when or where", "store the value"),
    ("SELECT * FROM orders WHERE amount >", "where: Spark SQL cannot read this expression", None),
    ("SELECT * FROM orders ORDER BY amount", "ORDER BY is not there", "penstock query"),
    ("SELECT * FROM orders WHERE amount > 1 LIMIT 3", "LIMIT is not there", "ROW_NUMBER()"),
    ("SELECT * FROM orders OFFSET 3", "OFFSET is not there", "ROW_NUMBER()"),
    ("SELECT * FROM orders UNION SELECT * FROM orders", "UNION without ALL is not there", "UNION ALL"),
    ("SELECT id FROM customers INTERSECT SELECT id FROM customers", "INTERSECT is not there", "LEFT SEMI JOIN"),
    ("SELECT id FROM customers EXCEPT SELECT id FROM customers", "EXCEPT is not there", "LEFT ANTI JOIN"),
    ("SELECT * FROM orders UNION ALL SELECT * FROM customers", "streams are united with streams", "changes(table)"),
    ("SELECT order_id, FROM orders", "something is missing before FROM; found 'order_id,'", None),
    ("SELECT (amount + 1 AS x FROM orders", "a ')' is missing for this '('; found '(amount + 1 AS x", None),
    ("SELECT CASE WHEN amount > 1 THEN 1 AS x FROM orders", "END is missing for this 'CASE'", None),
    (
        "SELECT order_id FROM orders UNION ALL SELECT country FROM orders",
        "columns that are united have the same type; 'order_id' is a number, 'country' a text",
        "CAST(country AS ...) AS country",
    ),
    ("SELECT order_id FROM orders UNION ALL SELECT * FROM orders", "have as many columns; the first has 1", None),
    (
        "SELECT * FROM orders WHERE customer_id IN (SELECT id FROM customers)",
        "IN (SELECT ...) is not there",
        "LEFT SEMI",
    ),
    ("SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM customers)", "EXISTS (SELECT ...) is not there", "LEFT SEMI"),
    ("SELECT (SELECT max(id) FROM customers) AS x FROM orders", "a subquery inside of an expression", "FROM or WITH"),
    (
        "SELECT lag(amount) OVER (ORDER BY placed_at) AS x FROM orders",
        "ROW_NUMBER() and RANK(), with a bound",
        "QUALIFY",
    ),
    ("SELECT sum(amount) OVER () AS x FROM orders", "ROW_NUMBER() and RANK(), with a bound", "QUALIFY"),
    ("SELECT explode(array(1)) AS x FROM orders", "a function that makes several rows is not there", ".map("),
    ("SELECT * FROM orders LATERAL VIEW explode(array(1)) t AS x", "LATERAL VIEW is not there", ".map("),
    ("SELECT * FROM orders PIVOT (sum(amount) FOR country IN ('DE'))", "PIVOT is not there", "FILTER (WHERE"),
    ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not there", "pmod(hash(id), 100)"),
    ("SELECT * FROM orders o (a, b)", "columns are not named behind a table's name", "SELECT a AS b"),
    ("SELECT * FROM tumble(orders)", "windows are made in GROUP BY; found tumble(...) in FROM", "window(time"),
    ("SELECT * FROM explode(orders)", "EXPLODE is not there", ".map("),
    (
        "SELECT * FROM latst(orders, country)",
        "there are changes(table) and latest(stream, key)",
        "did you mean 'latest'?",
    ),
    ("SELECT * FROM latest(customers, id)", "takes a stream; 'customers' is a table", None),
    ("SELECT * FROM latest(orders)", "needs the columns of the key", None),
    ("SELECT * FROM changes(orders)", "changes(table) takes one table", None),
    ("SELECT window(placed_at, '1 hour') AS w FROM orders", "windows are made in GROUP BY", "window.start"),
    ("SELECT * FROM orders EMIT FINAL", "EMIT is of windows, and there is none", "GROUP BY window("),
    ("SELECT * FROM orders LATE DROP", "LATE is of windows, and there is none", "GROUP BY window("),
    ("SELECT * FROM orders KEEP '1 hour'", "KEEP is of windows and of joins in time", "for ever"),
    ("SELECT * FROM orders WITHIN '1 hour'", "WITHIN says how far DISTINCT looks back", "BETWEEN"),
    ("SELECT DISTINCT * FROM orders WITHIN soon", "expected a length of time; found 'soon'", "INTERVAL 10 SECONDS"),
    ("SELECT DISTINCT ON (id) * FROM customers", "DISTINCT with ON is of streams", "ROW_NUMBER()"),
    ("SELECT DISTINCT ON (upper(country)) * FROM orders", "DISTINCT ON has names of columns", "in a query inside"),
    ("SELECT * FROM orders EMIT SOMETIMES", "expected FINAL or CHANGES behind EMIT; found 'SOMETIMES'", None),
    ("SELECT * FROM orders WHERE amount > 1 WHERE amount > 2", "WHERE is said twice", None),
    ("SELECT * FROM orders HAVING amount > 1", "HAVING needs GROUP BY or an aggregate", "a condition on rows is WHERE"),
    ("SELECT country FROM orders GROUP BY country WHERE amount > 1", "WHERE stands before GROUP", None),
    ("WITH RECURSIVE a AS (SELECT * FROM orders) SELECT * FROM a", "WITH RECURSIVE", None),
    ("WITH a AS (SELECT * FROM orders), a AS (SELECT * FROM orders) SELECT * FROM a", "two queries of this name", None),
    ("WITH a (x) AS (SELECT order_id FROM orders) SELECT * FROM a", "columns are named inside of the query", "AS name"),
    ("SELECT * FROM (orders)", "in parentheses stands a query", "without parentheses"),
    ("SELECT * FROM orders WHERE (amount > 1", "is missing", None),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_what_is_not_there_is_refused_with_what_to_write_instead(
    query: str, message: str, hint: str | None, refused: Callable[[str], DeclarationError]
) -> None:
    error = refused(query)
    assert message in error.message
    assert "conftest.py:" in error.message
    assert (hint is None) or (error.hint is not None and hint in error.hint)


def test_a_mistake_is_told_with_its_line(refused: Callable[[str], DeclarationError]) -> None:
    error = refused("SELECT\n  order_id,\n  amonut\nFROM orders")
    assert ": line 3: select: there is no column 'amonut'" in error.message
    error = refused("SELECT *\nFROM orders\n-- a comment\nWHERE country = 'DE'\n  AND amonut > 3")
    assert ": line 5: where: there is no column 'amonut'" in error.message
    error = refused("SELECT *\nFROM orders\nORDER BY amount")
    assert ": line 3: select: ORDER BY is not there" in error.message
