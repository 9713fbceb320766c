"""How the tests read a SQLite target: rows as Python values by the declared types, all of one epoch.

A query runs in one read transaction, so that all tables, and the epoch that it reports, come from the same commit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType

from penstock.derive.sqlite.connection import open_for_reading, sqlite_errors
from penstock.derive.views.answer import distinct_names
from tests.derive.sqlite.converters import register_converters

BUSY_SECONDS = 10.0

Row = tuple[object, ...]


class Answer:
    """The rows of an answer, read as they are taken. It sees one epoch until it is closed or read to the end.

    A column of a table has the values of its type: datetime in UTC, date, Decimal, bool, list and dict.
    What is computed in SQL is what SQLite makes of it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, cursor: sqlite3.Cursor, epoch: int) -> None:
        self.columns = tuple(column[0] for column in cursor.description)
        self.epoch = epoch
        self._path = path
        self._connection = connection
        self._cursor = cursor
        self._closed = False

    def __iter__(self) -> Iterator[Row]:
        with closing(self):
            while not self._closed:
                with sqlite_errors(self._path):
                    row = self._cursor.fetchone()
                if row is None:
                    return
                yield row

    def dicts(self) -> Iterator[dict[str, object]]:
        """The rows as dicts by column name. If two columns have the same name, the second gets a number."""
        names = distinct_names(self.columns)
        return (dict(zip(names, row, strict=True)) for row in self)

    def close(self) -> None:
        """End the transaction. Needed if not all rows are read: an open answer keeps the WAL from shrinking."""
        if not self._closed:
            self._closed = True
            self._cursor.close()  # a cursor in use would keep the connection open
            self._connection.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def query(path: str | os.PathLike[str], sql: str) -> Answer:
    """Run a query in SQLite's SQL on the tables as they are now, whatever is applied later."""
    file = Path(path)
    with sqlite_errors(file):
        connection = open_for_reading(file, busy_seconds=BUSY_SECONDS)
        try:
            connection.execute("BEGIN")
            # The first read of a table decides which commit the transaction sees.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            epoch = _last_epoch(connection)
            register_converters(_declared_types(connection))
            return Answer(file, connection, connection.execute(sql), epoch)
        except BaseException:
            connection.close()
            raise


def _last_epoch(connection: sqlite3.Connection) -> int:
    if not _has_table(connection, "penstock_epochs"):
        return 0
    row = connection.execute("SELECT epoch FROM penstock_epochs").fetchone()
    return int(row[0]) if row else 0


def _declared_types(connection: sqlite3.Connection) -> Iterator[str]:
    """The declared types of all columns of all tables that readers see."""
    register_converters(["JSON_TEXT"])
    if _has_table(connection, "penstock_views"):
        for (columns,) in connection.execute("SELECT columns FROM penstock_views WHERE NOT building"):
            yield from (declared for _, declared, _ in columns)


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None
