"""Where an expression ends, and durations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_columns_may_have_the_names_of_clauses(declared: Callable[[], Any]) -> None:
    app = declared().app
    odd = app.topic("odd", schema="late boolean, keep int, emit int, window int, `from` int, limit int")
    found = app.sql("SELECT keep, window AS late, `from`, limit FROM odd WHERE late AND keep > emit AND limit = 1")
    chosen = odd.where("late AND keep > emit AND limit = 1").select(
        keep="keep", late="window", limit="limit", **{"from": "`from`"}
    )
    assert set(found.columns) == set(chosen.columns)
    assert found.node.input == chosen.node.input


REFUSED = [
    ("SELECT DISTINCT * FROM orders WITHIN soon", "expected a length of time; found 'soon'", "INTERVAL 10 SECONDS"),
]


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_other_durations_are_refused(
    query: str, message: str, hint: str | None, check_refused: Callable[..., None]
) -> None:
    check_refused(query, message, hint)
