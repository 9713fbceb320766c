"""An app over a database that changes while it runs: at the end its views are what SQLite answers to its queries."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import App, AppSettings, Log
from tests.capture.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE customers (customer INTEGER PRIMARY KEY, country TEXT);
CREATE TABLE orders (number INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER);
"""
REVENUE = """
SELECT country, count(*) AS orders, sum(cents) AS cents
FROM orders JOIN customers USING (customer) GROUP BY country ORDER BY country
"""
AS_OF = """
SELECT visit, country FROM (
    SELECT visit, country, gone, row_number() OVER (PARTITION BY visit ORDER BY since DESC, place DESC) AS newest
    FROM visits JOIN history USING (customer) WHERE since <= at
) WHERE newest = 1 AND NOT gone ORDER BY visit
"""
COUNTRIES = ("DE", "FR", "IT")
CUSTOMERS = 8


def declare(log: Path, database: Path) -> App:
    app = App("shop", log=log, settings=AppSettings(state_partitions=2))
    customers = app.capture(f"sqlite:///{database}", table="customers")
    orders = app.capture(f"sqlite:///{database}", table="orders")
    visits = app.topic("visits", schema="visit bigint, customer bigint, at timestamp", time="at", lateness="1 hour")
    sold = orders.drop("committed_at").join(customers.drop("committed_at"), on="customer")
    app.view("revenue", sold.group_by("country").agg(orders="count(*)", cents="sum(cents)"))
    app.view("visited", visits.join(customers, on="customer", as_of="at").select("visit", "country"))
    return app


class Shop:
    """Clients of a database who change it at random, in transactions of one to five statements."""

    def __init__(self, path: Path, dice: random.Random) -> None:
        self.path, self._dice, self._orders, self._visits = path, dice, 0, 0

    def create(self) -> None:
        with self.connected() as connection:
            connection.executescript(TABLES)
        for _ in range(10):
            self.change()

    def change(self) -> None:
        with self.connected() as connection, connection:
            for _ in range(self._dice.randint(1, 5)):
                self._dice.choice([self._place, self._place, self._cancel, self._move, self._leave])(connection)

    def visit(self, log: Log) -> None:
        self._visits += 1
        row = {"visit": self._visits, "customer": self._dice.randrange(CUSTOMERS), "at": datetime.now(UTC)}
        log.topic("visits").append([row])

    def answer(self, query: str) -> list[dict[str, Any]]:
        with self.connected() as connection:
            return [dict(row) for row in connection.execute(query)]

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def _place(self, connection: sqlite3.Connection) -> None:
        self._orders += 1
        values = (self._orders, self._dice.randrange(CUSTOMERS), self._dice.randint(1, 900))
        connection.execute("INSERT INTO orders VALUES (?, ?, ?)", values)

    def _cancel(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM orders WHERE number = ?", (self._dice.randint(1, self._orders + 1),))

    def _move(self, connection: sqlite3.Connection) -> None:
        values = (self._dice.randrange(CUSTOMERS), self._dice.choice(COUNTRIES))
        connection.execute(
            "INSERT INTO customers VALUES (?, ?) ON CONFLICT DO UPDATE SET country = excluded.country", values
        )

    def _leave(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM customers WHERE customer = ?", (self._dice.randrange(CUSTOMERS),))


@pytest.mark.timeout(600)
def test_views_over_captured_tables_equal_the_same_queries_in_the_database(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop.db", random.Random(7))
    shop.create()
    app = declare(tmp_path / "log", shop.path)
    stop, epochs = threading.Event(), []
    running = threading.Thread(target=app.run, kwargs={"spark": spark, "stop": stop, "on_epoch": epochs.append})
    running.start()
    try:
        wait_until(lambda: bool(epochs), "the first epoch", while_=running.is_alive)
        with Log(tmp_path / "log") as log:
            for _ in range(60):
                shop.change()
                shop.visit(log)
                stop.wait(0.02)
    finally:
        stop.set()
        running.join()
    app.run(once=True, spark=spark)
    assert app.query("SELECT * FROM revenue ORDER BY country").to_arrow().to_pylist() == shop.answer(REVENUE)
    assert app.query("SELECT * FROM visited ORDER BY visit").to_arrow().to_pylist() == as_of_answer(tmp_path / "log")


def as_of_answer(folder: Path) -> list[dict[str, Any]]:
    """What SQLite says each visit saw, from the history that the topic has of the customers."""
    with closing(sqlite3.connect(":memory:")) as connection, Log(folder) as log:
        connection.row_factory = sqlite3.Row
        connection.execute("CREATE TABLE visits (visit, customer, at)")
        connection.execute("CREATE TABLE history (customer, country, since, gone, place)")
        for batch in log.topic("visits").batches():
            rows = ((row["visit"], row["customer"], row["at"].timestamp()) for row in batch.rows.to_pylist())
            connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
        for batch in log.topic("customers").batches():
            marked = zip(batch.rows_marked.to_pylist(), batch.offsets.tolist(), strict=True)
            changes = (
                (row["customer"], row["country"], row["committed_at"].timestamp(), row["_deleted"], place)
                for row, place in marked
            )
            connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?)", changes)
        return [dict(row) for row in connection.execute(AS_OF)]


OUTBOX = "CREATE TABLE outbox (id INTEGER PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT)"


@pytest.mark.timeout(600)
def test_each_event_of_an_outbox_is_counted_once_although_the_outbox_is_emptied(
    tmp_path: Path, spark: SparkSession
) -> None:
    app = App("events", log=tmp_path / "log", settings=AppSettings(state_partitions=1))
    with closing(sqlite3.connect(tmp_path / "shop.db", timeout=60)) as connection:
        connection.execute(OUTBOX)
        events = app.capture(f"sqlite:///{tmp_path}/shop.db", outbox="outbox", name="events")
        app.view("placed", events.where("type = 'placed'").group_by("aggregateid").agg(events="count(*)"))
        for _ in range(2):
            with connection:
                for number in range(20):
                    kind = "placed" if number % 2 else "paid"
                    values = ("order", str(number % 4), kind, "{}")
                    connection.execute(
                        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES (?, ?, ?, ?)", values
                    )
            app.run(once=True, spark=spark)
            with connection:
                connection.execute("UPDATE outbox SET type = 'placed'")
                connection.execute("DELETE FROM outbox WHERE id < 20")
    app.run(once=True, spark=spark)
    found = {row["aggregateid"]: row["events"] for row in app.query("SELECT * FROM placed")}
    assert found == {"1": 10, "3": 10}
