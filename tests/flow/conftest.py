"""What tests of declarations use: an app with a topic and a table."""

from __future__ import annotations

import pytest

from penstock import App, Stream, Table

ORDERS = """
    order_id bigint not null, customer_id bigint, country string, amount decimal(10,2), price double, quantity int,
    tags array<string>, address struct<city: string, zip: string>, placed_at timestamp
"""


@pytest.fixture
def app() -> App:
    return App("shop")


@pytest.fixture
def orders(app: App) -> Stream:
    return app.topic("orders", schema=ORDERS, key="order_id", time="placed_at", lateness="10 seconds")


@pytest.fixture
def customers(app: App) -> Table:
    return app.table("customers", schema="id bigint not null, name string, country string", key="id")
