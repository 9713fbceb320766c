"""Why not simply write to the database and to the index? Two clients change the price of one product at the same time.

    python examples/dual_writes.py

Each client writes the database, and then the index. Between the two writes anything can happen: here the other client
comes first in the index and last in the database, or the other way round. Then the two stores differ, no error was
raised, and nothing will ever correct it. No order of the two writes is safe, and neither is a retry.

With a capture, clients write only the database. Its log has one order, and the index follows that order: it is equal to
the database, whoever was faster. The same clients run both times, step by step in the same order.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import penstock as ps

PRODUCTS = "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)"
# Which client takes its next step. Each has two: the database, then the index.
SCHEDULE = ("Ada", "Bob", "Bob", "Ada")
PRICES = {"Ada": 90, "Bob": 120}


# -- A store, and two clients ------------------------------------------------------------------------------------------


def execute(store: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(store)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def prices(store: Path) -> dict[str, int]:
    return dict(execute(store, "SELECT name, price FROM products ORDER BY id"))


def create_shop(store: Path) -> None:
    execute(store, PRODUCTS)
    execute(store, "INSERT INTO products VALUES (1, 'tea', 100), (2, 'ink', 300)")


def client(name: str, stores: list[Path]) -> Iterator[str]:
    """Set the price of tea in each store, one after the other; the caller says when it takes its next step."""
    for store in stores:
        execute(store, "UPDATE products SET price = ? WHERE name = 'tea'", PRICES[name])
        yield f"{name} writes {PRICES[name]} to {store.stem}"


def run_clients(stores: list[Path]) -> None:
    clients = {name: client(name, stores) for name in PRICES}
    for name in SCHEDULE:
        if step := next(clients[name], None):
            print(f"  {step}")


# -- The two ways ------------------------------------------------------------------------------------------------------


def write_both(folder: Path) -> bool:
    """Dual writes: each client writes both stores. Returns whether they are equal."""
    folder.mkdir()
    database, index = folder / "database.db", folder / "index.db"
    create_shop(database)
    create_shop(index)
    print("dual writes:")
    run_clients([database, index])
    return compare(database, index)


def capture_one(folder: Path) -> bool:
    """Capture: the clients write the database, and the index follows it. Returns whether they are equal."""
    folder.mkdir()
    database, index = folder / "database.db", folder / "index.db"
    create_shop(database)
    app = ps.App("shop", log=folder / "log", settings=ps.AppSettings(state_partitions=1))
    products = app.capture(f"sqlite:///{database}", table="products")
    app.sink("products", products.drop("committed_at"), to=f"sqlite:///{index}")
    app.run(once=True)  # the first copy
    print("capture:")
    run_clients([database])
    app.run(once=True)
    print("  the index follows the database")
    return compare(database, index)


def compare(database: Path, index: Path) -> bool:
    in_database, in_index = prices(database), prices(index)
    verdict = "equal" if in_database == in_index else "different, and will stay so"
    print(f"  database {in_database}, index {in_index}: {verdict}\n")
    return in_database == in_index


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        dual = write_both(Path(folder) / "dual")
        captured = capture_one(Path(folder) / "captured")
    return 0 if captured and not dual else 1


if __name__ == "__main__":
    sys.exit(main())
