"""Queries that cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.app import load_app
from penstock.errors import DeclarationError

REFUSED = [
    ("SELECT amount", "FROM is missing", None),
    ("SELECT , amount FROM orders", "an item is missing between the commas", None),
    ("SELECT * EXCEPT (amount) FROM orders", "'*' cannot be part of an expression", "name the columns"),
    ("SELECT amount AS 'x' FROM orders", "a name is expected after AS", "in backquotes"),
    ("SELECT * FROM orders UNION SELECT * FROM orders", "UNION without ALL is not supported", "UNION ALL"),
    ("SELECT id FROM customers INTERSECT SELECT id FROM customers", "INTERSECT is not supported", "LEFT SEMI JOIN"),
    ("SELECT id FROM customers EXCEPT SELECT id FROM customers", "EXCEPT is not supported", "LEFT ANTI JOIN"),
    ("SELECT order_id, FROM orders", "something is missing before FROM; found 'order_id,'", None),
    ("SELECT (amount + 1 AS x FROM orders", "a ')' is missing for this '('; found '(amount + 1 AS x", None),
    ("SELECT CASE WHEN amount > 1 THEN 1 AS x FROM orders", "END is missing for this 'CASE'", None),
    ("SELECT * FROM orders LATERAL VIEW explode(array(1)) t AS x", "LATERAL VIEW is not supported", ".map("),
    ("SELECT * FROM orders o (a, b)", "columns cannot be renamed after a table's name", "SELECT a AS b"),
    ("SELECT * FROM explode(orders)", "EXPLODE is not supported", ".map("),
    ("SELECT * FROM orders EMIT SOMETIMES", "expected FINAL or CHANGES after EMIT; found 'SOMETIMES'", None),
    ("SELECT * FROM orders WHERE amount > 1 WHERE amount > 2", "WHERE is said twice", None),
    ("SELECT country FROM orders GROUP BY country WHERE amount > 1", "WHERE must come before GROUP", None),
    ("WITH RECURSIVE a AS (SELECT * FROM orders) SELECT * FROM a", "WITH RECURSIVE", None),
    ("WITH a AS (SELECT * FROM orders), a AS (SELECT * FROM orders) SELECT * FROM a", "two queries of this name", None),
    ("WITH a (x) AS (SELECT order_id FROM orders) SELECT * FROM a", "columns are named inside of the query", "AS name"),
    ("SELECT * FROM (orders)", "parentheses are for a query", "without parentheses"),
    ("SELECT * FROM orders WHERE (amount > 1", "is missing", None),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_what_cannot_be_parsed_is_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)


def test_a_statement_that_was_not_ended_is_answered(tmp_path: Path) -> None:
    program = tmp_path / "shop.sql"
    program.write_text("CREATE TABLE a (id BIGINT) WITH (key = 'id')\nCREATE VIEW v AS SELECT * FROM a")
    with pytest.raises(DeclarationError, match="expected the end; found 'CREATE'") as refused:
        load_app(program)
    assert refused.value.hint == "end each statement with ';'"
