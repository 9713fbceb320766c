"""What tests of SQL use: a shop that is declared in Python, and a comparison of plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from penstock import App, Stream, Table
from penstock.errors import DeclarationError

Python = Callable[["Shop"], Stream | Table]


@dataclass(frozen=True)
class Shop:
    """Streams with a time, and tables."""

    app: App
    orders: Stream
    searches: Stream
    clicks: Stream
    customers: Table
    stores: Table


def shop() -> Shop:
    app = App("shop")
    return Shop(
        app,
        orders=app.topic(
            "orders",
            schema="order_id bigint not null, customer_id bigint, country string, amount decimal(10,2), "
            "address struct<city: string>, placed_at timestamp",
            key="order_id",
            time="placed_at",
        ),
        searches=app.topic("searches", schema="search_id bigint, words string, at timestamp", time="at"),
        clicks=app.topic("clicks", schema="search_id bigint, url string, at timestamp", time="at"),
        customers=app.table(
            "customers",
            schema="id bigint not null, name string, country string, since timestamp",
            key="id",
            time="since",
        ),
        stores=app.table("stores", schema="store string, country string, customer_id bigint", key="store"),
    )


@pytest.fixture
def same() -> Callable[[str, Python], None]:
    """Checks that a query in SQL and the Python verbs give the same plan."""

    def check(query: str, python: Python) -> None:
        in_sql, in_python = shop(), shop()
        in_sql.app.sql(f"CREATE VIEW answer AS {query}")
        in_python.app.view("answer", python(in_python))
        assert in_sql.app.plan == in_python.app.plan

    return check


@pytest.fixture
def refused() -> Callable[[str], DeclarationError]:
    """What is raised for a statement."""

    def check(statement: str) -> DeclarationError:
        with pytest.raises(DeclarationError) as raised:
            shop().app.sql(statement)
        return raised.value

    return check


@pytest.fixture
def check_refused(refused: Callable[[str], DeclarationError]) -> Callable[[str, str, str | None], None]:
    """Checks that a query is refused with this in its message and hint, and with the line of the caller."""

    def check(query: str, message: str, hint: str | None) -> None:
        error = refused(query)
        assert message in error.message
        assert "conftest.py:" in error.message
        assert (hint is None) or (error.hint is not None and hint in error.hint)

    return check


@pytest.fixture
def declared() -> Callable[[], Shop]:
    """A new shop."""
    return shop
