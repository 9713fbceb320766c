"""Names that mean nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

REFUSED = [
    ("SELECT amonut FROM orders", "select: there is no column 'amonut'", "did you mean 'amount'?"),
    ("SELECT Amount FROM orders", "select: there is no column 'Amount'", "did you mean 'amount'?"),
    ("SELECT o.amonut FROM orders o", "'o' has no column 'amonut'", "did you mean 'amount'?"),
    ("SELECT x.amount FROM orders o", "there is no table and no column 'x'", None),
    ("SELECT amount FROM ordres", "there is no topic, table or view 'ordres'", "did you mean 'orders'?"),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_a_name_that_means_nothing_is_refused_with_one_that_is_like_it(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
