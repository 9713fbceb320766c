"""A process that writes random transactions to a SQLite file until it is killed: python writer.py PATH SEED COUNT.

Each transaction changes several rows of both tables and the sum of all amounts stays zero.
"""

from __future__ import annotations

import random
import sqlite3
import sys


def write(connection: sqlite3.Connection, chance: random.Random) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for step in range(chance.randint(1, 6)):
        is_undone = chance.random() < 0.3
        connection.execute("SAVEPOINT step")
        move(connection, chance, step)
        connection.execute("ROLLBACK TO step" if is_undone else "RELEASE step")
    connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


def move(connection: sqlite3.Connection, chance: random.Random, step: int) -> None:
    """Two changes that belong together."""
    amount = chance.randint(1, 100)
    for number, value in zip(chance.sample(range(60), 2), (amount, -amount), strict=True):
        connection.execute(
            "INSERT INTO accounts VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET amount = amount + excluded.amount",
            (number, f"step {step}", value),
        )
    if chance.random() < 0.3:
        connection.execute("DELETE FROM accounts WHERE amount = 0")
    connection.execute("REPLACE INTO pairs VALUES (?, ?, ?)", (chance.randint(1, 5), chance.choice("xyz"), str(amount)))
    if chance.random() < 0.3:
        connection.execute("UPDATE OR REPLACE pairs SET a = a % 5 + 1 WHERE b = ?", (chance.choice("xyz"),))


def main() -> None:
    path, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    chance = random.Random(seed)
    for number in range(count):
        write(connection, chance)
        if number == 0:
            print("begun", flush=True)
    connection.close()


if __name__ == "__main__":
    main()
