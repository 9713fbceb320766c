"""Clients of a bank: several sessions that change its tables in random transactions until they are told to stop.

What each session tries is decided by its seed. What becomes of it depends on the others, and on the server.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.capture.proof.bank import PEOPLE, Bank

SESSIONS = 3
PAUSE = 0.01
LARGE = 50_000


class Load:
    """`commits` counts transactions. From `record` on, every transfer is in the table `history` too."""

    def __init__(self, bank: Bank, seed: int) -> None:
        self.bank, self.seed = bank, seed
        self.commits = 0
        self.problem: BaseException | None = None
        self.record = threading.Event()
        self.columns: list[str] = []  # that were added
        self._ids = 10_000_000
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[Load]:
        self._stop.clear()
        threads = [threading.Thread(target=self._session, args=(number,)) for number in range(SESSIONS)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert self.problem is None, self.problem

    def new_ids(self, count: int = 1) -> int:
        """The first of so many numbers that nobody has."""
        with self._lock:
            self._ids += count
            return self._ids - count

    def write_large_transaction(self, dice: random.Random, rows: int = LARGE) -> None:
        """Many rows, and transfers among them. It may fail like any other."""
        with suppress(*self.bank.errors):
            connection = self.bank.connect()
            with suppress(*self.bank.errors):
                _Transaction(self, connection, dice).write_many(rows)
                connection.commit()
            connection.close()

    def _session(self, number: int) -> None:
        dice = random.Random(f"{self.seed}.{number}")
        try:
            while not self._stop.is_set():
                with suppress(*self.bank.errors):
                    self._connected(dice)
                self._stop.wait(0.1)
        except BaseException as error:
            self.problem = error
            raise

    def _connected(self, dice: random.Random) -> None:
        connection = self.bank.connect()
        try:
            while not self._stop.is_set():
                try:
                    _Transaction(self, connection, dice).run()
                except self.bank.errors:
                    connection.rollback()  # a deadlock; if the server is gone, this fails as well
                self._stop.wait(PAUSE)
        finally:
            with suppress(*self.bank.errors):
                connection.close()


class _Transaction:
    def __init__(self, load: Load, connection: Any, dice: random.Random) -> None:
        self.load, self.connection, self.dice = load, connection, dice
        self.cursor = connection.cursor()
        self.is_recorded = load.record.is_set()
        self.version = load.bank.next_version

    def run(self) -> None:
        for _ in range(self.dice.choice((1, 1, 2, 5, 30))):
            self._step()
        if self.dice.random() < 0.1:
            self.connection.rollback()
            return
        self.connection.commit()
        self.load.commits += 1

    def write_many(self, rows: int) -> None:
        first = self.load.new_ids(rows)
        half = rows // 2
        for start in (first, first + half):
            numbers = self.load.bank.numbers(start, half)
            self._execute(f"INSERT INTO items (id, amount, version, note) SELECT n, n, 0, 'many' FROM {numbers}")
            self._transfer()
        self._set(f"amount = -1, version = {self.version}", f"id >= {first} AND id < {first + rows // 5}")
        self._execute(f"DELETE FROM items WHERE id >= {first + rows // 10} AND id < {first + rows - 100}")

    def _step(self) -> None:
        if self.dice.random() < 0.15:
            return self._savepoint()
        steps = [self._transfer, self._transfer, self._renumber, self._insert, self._insert]
        return self.dice.choice([*steps, self._update, self._update, self._touch, self._move, self._delete])()

    def _savepoint(self) -> None:
        self._execute("SAVEPOINT here")
        for _ in range(self.dice.randint(1, 4)):
            self._step()
        self._execute(self.dice.choice(("ROLLBACK TO SAVEPOINT here", "RELEASE SAVEPOINT here")))

    # -- transfers ----------------------------------------------------------------------------------------------------

    def _transfer(self) -> None:
        amount = self.dice.randint(1, 50)
        one, two = self.dice.randint(1, PEOPLE), self.dice.randint(1, PEOPLE)
        self._execute("SAVEPOINT transfer")
        if self._add("accounts", one, -amount) and self._add("savings", two, amount):
            return
        self._execute("ROLLBACK TO SAVEPOINT transfer")

    def _add(self, table: str, number: int, amount: int) -> bool:
        statement = f"UPDATE {table} SET balance = balance + %s, version = {self.version} WHERE id = %s"
        self.cursor.execute(statement, (amount, number))
        found = bool(self.cursor.rowcount)
        if found and self.is_recorded:
            self.cursor.execute(f"INSERT INTO history SELECT id, version FROM {table} WHERE id = %s", (number,))
        return found

    def _renumber(self) -> None:
        """An account gets another number, and perhaps its old one again later."""
        old = self.dice.randint(1, PEOPLE)
        new = old + PEOPLE * 1000
        if self.dice.random() < 0.5:
            old, new = new, old
        self.cursor.execute("SELECT 1 FROM accounts WHERE id = %s", (new,))
        if not self.cursor.fetchall():
            self.cursor.execute("UPDATE accounts SET id = %s, version = 0 WHERE id = %s", (new, old))

    # -- items --------------------------------------------------------------------------------------------------------

    def _insert(self) -> None:
        note = self.dice.randbytes(6_000).hex() if self.dice.random() < 0.1 else "new"
        number = self.load.new_ids()
        self.cursor.execute("INSERT INTO items (id, amount, version, note) VALUES (%s, 1, 0, %s)", (number, note))
        self._set(f"version = {self.version}", f"id = {number}")

    def _update(self) -> None:
        self._set(f"amount = amount + 1, version = {self.version}", self._some())

    def _touch(self) -> None:
        """Changes a column that was added, so that large notes are not sent again."""
        for column in self.dice.sample(self.load.columns[:], k=min(1, len(self.load.columns))):
            self._set(f"{column} = {self.dice.randint(1, 9)}, version = {self.version}", self._some())

    def _move(self) -> None:
        """A key changes: to a new one, or to one that was used before."""
        old, new = self._some_id(), self.load.new_ids() if self.dice.random() < 0.5 else self._some_id()
        self.cursor.execute("SELECT 1 FROM items WHERE id = %s", (new,))
        if not self.cursor.fetchall():
            self._execute(f"UPDATE items SET id = {new}, version = 0 WHERE id = {old}")
            self._set(f"version = {self.version}", f"id = {new}")

    def _delete(self) -> None:
        self._execute(f"DELETE FROM items WHERE {self._some()}")

    def _some(self) -> str:
        first = self._some_id()
        return f"id >= {first} AND id < {first + self.dice.choice((1, 1, 3, 50))}"

    def _some_id(self) -> int:
        if self.dice.random() < 0.5:
            return self.dice.randint(1, 3_000)
        return self.load._ids - self.dice.randint(1, 500)

    def _set(self, values: str, where: str) -> None:
        self._execute(f"UPDATE items SET {values} WHERE {where}")

    def _execute(self, statement: str) -> None:
        self.cursor.execute(statement)
