"""What SQL has and Penstock does not support."""

from __future__ import annotations

from collections.abc import Callable

import pytest

REFUSED = [
    ("SELECT summ(amount) AS x FROM orders", "Spark has no function 'summ'", "did you mean 'sum'?"),
    ("SELECT * FROM orders ORDER BY amount", "ORDER BY is not supported", "penstock query"),
    ("SELECT * FROM orders WHERE amount > 1 LIMIT 3", "LIMIT is not supported", "ROW_NUMBER()"),
    ("SELECT * FROM orders OFFSET 3", "OFFSET is not supported", "ROW_NUMBER()"),
    (
        "SELECT * FROM orders WHERE customer_id IN (SELECT id FROM customers)",
        "IN (SELECT ...) is not supported",
        "LEFT SEMI",
    ),
    (
        "SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM customers)",
        "EXISTS (SELECT ...) is not supported",
        "LEFT SEMI",
    ),
    ("SELECT (SELECT max(id) FROM customers) AS x FROM orders", "a subquery inside of an expression", "FROM or WITH"),
    (
        "SELECT lag(amount) OVER (ORDER BY placed_at) AS x FROM orders",
        "ROW_NUMBER() and RANK(), with a bound",
        "QUALIFY",
    ),
    ("SELECT sum(amount) OVER () AS x FROM orders", "ROW_NUMBER() and RANK(), with a bound", "QUALIFY"),
    ("SELECT explode(array(1)) AS x FROM orders", "a function that makes several rows is not supported", ".map("),
    ("SELECT * FROM orders PIVOT (sum(amount) FOR country IN ('DE'))", "PIVOT is not supported", "FILTER (WHERE"),
    ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported", "pmod(hash(id), 100)"),
    ("SELECT window(placed_at, '1 hour') AS w FROM orders", "windows are made in GROUP BY", "window.start"),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_what_is_not_supported_is_refused_with_what_to_write_instead(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
