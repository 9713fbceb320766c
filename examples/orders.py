"""Orders are written by one process and counted by another. The writer is killed; nothing is lost, nothing doubled.

    python examples/orders.py            in a temporary folder
    python examples/orders.py ./shop     in a folder of your own, to look into with `penstock --log ./shop`

There is no server: both processes open the same folder.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from multiprocessing.context import SpawnProcess
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock import Log

ORDERS = 2_000
ORDERS_AT_A_TIME = 20
MOST_UNCOUNTED = 400  # the shop takes no more orders while so many are not counted yet
COUNTRIES = ("DE", "FR", "IT", "JP")


# -- The shop: a process that writes orders ----------------------------------------------------------------------------


def order(number: int) -> dict[str, object]:
    """The order of this number: always the same one, so that we can tell at the end what should have come out."""
    return {
        "order_id": number,
        "country": COUNTRIES[number % 13 % 7 % 4],
        "amount": Decimal(number * 37 % 9_900 + 100) / 100,
        "placed_at": datetime(2026, 1, 31, tzinfo=UTC) + timedelta(seconds=number),
    }


def run_shop(folder: Path) -> None:
    """Write all orders, from the first to the last, however often this is started.

    The producer has a name, and what it appends has a sequence number. The log remembers how far this name has come:
    a sequence it has seen is acknowledged again, but not stored again.
    """
    with Log(folder) as log:
        orders, counter = log.topic("orders"), log.group("counter")
        shop = log.producer("shop")
        for sequence in range(ORDERS // ORDERS_AT_A_TIME):
            first = sequence * ORDERS_AT_A_TIME
            shop.append(orders, [order(first + n) for n in range(ORDERS_AT_A_TIME)], sequence=sequence)
            time.sleep(0.005)  # customers take their time
            while sum(part.lag for part in counter.lag()) > MOST_UNCOUNTED:
                time.sleep(0.005)


def start_shop(folder: Path) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(target=run_shop, args=(folder,), daemon=True)
    process.start()
    return process


# -- The counter: follows the orders, and keeps the totals in a topic of their own -------------------------------------


class Revenue:
    """How many orders came from each country, and how much they brought."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.amount: Counter[str] = Counter()

    @property
    def orders(self) -> int:
        return self.count.total()

    def add(self, rows: list[dict[str, object]]) -> None:
        for row in rows:
            country = str(row["country"])
            self.count[country] += 1
            self.amount[country] += row["amount"]  # type: ignore[assignment]

    def totals(self) -> list[dict[str, object]]:
        return [{"country": c, "orders": self.count[c], "revenue": self.amount[c]} for c in sorted(self.count)]


def count_orders(log: Log, revenue: Revenue, *, until: int) -> None:
    """Follow the orders until so many are counted.

    The totals and the offsets up to which they count go into the log in one transaction: whoever joins the group next,
    also after a crash, begins exactly where these totals end.
    """
    totals = log.topic("revenue")
    with Board(revenue) as board, log.group("counter").join(["orders"]) as member:
        while revenue.orders < until:
            deliveries = member.poll(timeout=60.0)
            assert deliveries, "no orders come any more"
            for delivery in deliveries:
                revenue.add(delivery.batch.rows.to_pylist())
            with log.transaction() as transaction:
                transaction.append(totals, revenue.totals())
                transaction.commit_offsets(member)
            board.update()


class Board:
    """Shows the totals as they move: a table on a terminal, a line for every 500 orders elsewhere."""

    def __init__(self, revenue: Revenue) -> None:
        self._revenue = revenue
        self._shown = revenue.orders // 500
        self._live = Live(console=Console(), auto_refresh=False) if sys.stdout.isatty() else None

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self) -> None:
        if self._live:
            self._live.update(self._table(), refresh=True)
        elif self._revenue.orders // 500 > self._shown:
            self._shown = self._revenue.orders // 500
            shares = "   ".join(f"{row['country']} {row['revenue']:>9,}" for row in self._revenue.totals())
            print(f"  {self._revenue.orders:>5,} orders   {shares}")

    def _table(self) -> Table:
        table = Table("country")
        for name in ("orders", "revenue"):
            table.add_column(name, justify="right")
        for row in self._revenue.totals():
            table.add_row(str(row["country"]), f"{row['orders']:,}", f"{row['revenue']:,}")
        return table


# -- The story ---------------------------------------------------------------------------------------------------------


def main(folder: Path) -> None:
    with Log(folder) as log:
        orders = log.create_topic(
            "orders",
            "order_id bigint, country string, amount decimal(10,2), placed_at timestamp",
            key="order_id",
            time="placed_at",
            partitions=4,
        )
        log.create_topic("revenue", "country string, orders bigint, revenue decimal(12,2)", key="country")
        revenue = Revenue()

        print(f"A shop writes {ORDERS:,} orders; we count them as they arrive.")
        shop = start_shop(folder)
        count_orders(log, revenue, until=ORDERS // 2)

        shop.kill()
        shop.join()
        missing = ORDERS - len(orders.read())
        assert missing > 0, "the shop was done before it could be killed"

        print(f"The shop was killed at work; {missing:,} orders are missing. It starts again, from its first order.")
        shop = start_shop(folder)
        count_orders(log, revenue, until=ORDERS)
        shop.join()

        print(proof(log, revenue))


def proof(log: Log, revenue: Revenue) -> str:
    """Compare what is in the log with what should be there."""
    expected = Revenue()
    expected.add([order(number) for number in range(ORDERS)])
    stored = log.topic("orders").read()
    newest = {row["country"]: row for row in log.topic("revenue").read()}

    assert sorted(row["order_id"] for row in stored) == list(range(ORDERS)), "an order is missing, or there twice"
    assert revenue.totals() == expected.totals(), "the totals are not those of the orders"
    assert [newest[country] for country in sorted(newest)] == expected.totals(), "the stored totals differ"
    assert not any(part.problems for topic in log.topics() for part in log.topic(topic).verify()), "a file is damaged"
    assert all(part.lag == 0 for part in log.group("counter").lag()), "the group is behind"
    total = sum(expected.amount.values())
    return f"Verified: {len(stored):,} orders, each exactly once; {total:,} revenue, to the cent; every byte checked."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-") as temporary:
            main(Path(temporary))
