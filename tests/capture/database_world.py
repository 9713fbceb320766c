"""What the conformance suite of `Database` needs of a database: its two tables, transactions, and the rows as they are.

To test another database, inherit `SqlWorld`: connect, `execute`, `fetch`, `open`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.contracts import Database, SourceOptions, SourceTable

Row = dict[str, Any]

TABLES = {"accounts": ("id",), "pairs": ("a", "b")}
"""The tables of a world and their keys.

`accounts` has `id bigint`, `name` (text), `amount bigint`; `pairs` has `a bigint`, `b` (text), `note` (text).
"""


@dataclass(frozen=True, slots=True)
class Insert:
    table: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Update:
    """Sets some columns of the row of a key, maybe the key too."""

    table: str
    key: Mapping[str, Any]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    table: str
    key: Mapping[str, Any]


Statement = Insert | Update | Remove


def account(number: int, name: str | None = "", amount: int = 0) -> Insert:
    return Insert("accounts", {"id": number, "name": name, "amount": amount})


def pair(a: int, b: str, note: str | None = None) -> Insert:
    return Insert("pairs", {"a": a, "b": b, "note": note})


class DatabaseWorld(ABC):
    """A database with the two tables, which are empty at first."""

    secret: str | None = None
    """The password in its URL, which must not be shown."""

    @abstractmethod
    def run(self, *statements: Statement) -> None:
        """Run these statements in one transaction, and commit it."""

    @abstractmethod
    def truncate(self, table: str) -> None:
        """Delete all rows at once, in the way of this database."""

    @abstractmethod
    def rows(self, table: str) -> list[Row]:
        """The rows of a table as they are now, in the order of the key."""

    @abstractmethod
    def open(self, options: SourceOptions | None = None, tables: Sequence[SourceTable] | None = None) -> Database:
        """The database, to capture these tables (None: both), as `open_database` gives it."""

    def open_unreachable(self) -> Database | None:
        """The same with a server that does not answer; None if this database has no such thing."""
        return None

    def lose_changes(self) -> bool:
        """Make the database forget what it has logged so far. False: there is no way."""
        return False

    def close(self) -> None:
        """Release what is open."""
        return


class SqlWorld(DatabaseWorld):
    """A world whose statements are SQL."""

    DDL = (
        "CREATE TABLE accounts (id bigint NOT NULL PRIMARY KEY, name varchar(200), amount bigint)",
        "CREATE TABLE pairs (a bigint NOT NULL, b varchar(50) NOT NULL, note varchar(200), PRIMARY KEY (a, b))",
    )

    @abstractmethod
    def execute(self, *statements: str) -> None:
        """Run statements in one transaction, and commit it."""

    @abstractmethod
    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    def run(self, *statements: Statement) -> None:
        self.execute(*map(to_sql, statements))

    def truncate(self, table: str) -> None:
        self.execute(f"TRUNCATE TABLE {table}")

    def rows(self, table: str) -> list[Row]:
        names = {"accounts": ("id", "name", "amount"), "pairs": ("a", "b", "note")}[table]
        rows = self.fetch(f"SELECT {', '.join(names)} FROM {table}")
        return sorted((dict(zip(names, row, strict=True)) for row in rows), key=lambda row: key_of(table, row))


def key_of(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in TABLES[table])


def to_sql(statement: Statement) -> str:
    if isinstance(statement, Insert):
        values = ", ".join(literal(value) for value in statement.row.values())
        return f"INSERT INTO {statement.table} ({', '.join(statement.row)}) VALUES ({values})"
    where = " AND ".join(f"{name} = {literal(value)}" for name, value in statement.key.items())
    if isinstance(statement, Remove):
        return f"DELETE FROM {statement.table} WHERE {where}"
    sets = ", ".join(f"{name} = {literal(value)}" for name, value in statement.values.items())
    return f"UPDATE {statement.table} SET {sets} WHERE {where}"


def literal(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
