"""Which columns a node needs of its input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Stream, tumbling
from penstock.flow.needs import EVERYTHING, is_needed, needed_of_input

NEEDED = frozenset({"country"})


@pytest.mark.parametrize(
    ("verb", "needed"),
    [
        (lambda rows: rows.where("amount > 1"), {"country", "amount"}),
        (lambda rows: rows.rename(Price="price").where("Price > 1"), {"country", "price"}),
        (lambda rows: rows.select("order_id", country="upper(country)"), {"country"}),
        (lambda rows: rows.select("order_id"), set()),
        (lambda rows: rows.union(rows), {"country"}),
        (lambda rows: rows.group_by("country").agg(s="sum(price)"), {"country", "price"}),
        (lambda rows: rows.window(tumbling("1 hour")).group_by().agg(n="count(*)"), {"placed_at"}),
        (lambda rows: rows.map(len).with_columns(a="b + 1"), {"*"}),
        (lambda rows: rows.top(1, by="price"), {"*"}),
        (lambda rows: rows.latest("country"), {"*"}),
    ],
)
def test_a_node_needs_these_columns_of_its_input(orders: Stream, verb: Callable[[Any], Any], needed: set[str]) -> None:
    assert needed_of_input(verb(orders).node, NEEDED) == needed


def test_names_are_compared_without_case() -> None:
    assert is_needed("Country", NEEDED)
    assert not is_needed("price", NEEDED)
    assert is_needed("price", EVERYTHING)
