"""A SQLite file with the tables of the conformance suite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.capture.sqlite.source import SqliteDatabase
from penstock.contracts import SourceOptions, SourceTable
from penstock.databases import open_database
from tests.capture.database_world import TABLES, SqlWorld


class SqliteWorld(SqlWorld):
    def __init__(self, path: Path, *, journal_mode: str = "wal", ddl: Sequence[str] = SqlWorld.DDL) -> None:
        self.path = path
        with closing(self.connect()) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        self.execute(*ddl)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def execute(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            return connection.execute(query).fetchall()

    def truncate(self, table: str) -> None:
        self.execute(f"DELETE FROM {table}")

    def open(self, options: SourceOptions | None = None, tables: Sequence[SourceTable] | None = None) -> SqliteDatabase:
        wanted = [SourceTable(name) for name in TABLES] if tables is None else tables
        database = open_database(f"sqlite:///{self.path}", wanted, options or SourceOptions())
        assert isinstance(database, SqliteDatabase)
        return database

    def open_unreachable(self) -> SqliteDatabase:
        database = open_database(f"sqlite:///{self.path}.away", [SourceTable("accounts")], SourceOptions())
        assert isinstance(database, SqliteDatabase)
        return database

    def lose_changes(self) -> bool:
        self.execute("DELETE FROM _penstock_changes WHERE id < (SELECT max(id) FROM _penstock_changes)")
        return True
