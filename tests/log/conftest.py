"""What the tests of the log share: an open log in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log import Log, Topic

ORDERS = "order_id long, country string, amount double, placed_at timestamp"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        yield opened


@pytest.fixture
def orders(log: Log) -> Topic:
    return log.create_topic("orders", ORDERS, key="order_id", time="placed_at", partitions=4)
