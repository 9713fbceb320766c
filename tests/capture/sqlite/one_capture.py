"""One capture of a SQLite file, for tests that change the file and compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.capture.sqlite.source import SqliteDatabase
from penstock.contracts import SourceOptions, SourceTable
from tests.capture.database_contract import items_to_end
from tests.capture.database_fold import Fold, Item
from tests.capture.sqlite.world import SqliteWorld


class Capture:
    """One capture of a file, which a test changes; `rows` catches up first."""

    def __init__(self, path: Path, ddl: Sequence[str], tables: Sequence[SourceTable | str]) -> None:
        self.world = SqliteWorld(path, ddl=ddl)
        self.tables = [SourceTable(table) if isinstance(table, str) else table for table in tables]
        self.database = self.open()
        self.fold = Fold.of(self.database.tables())
        self.catch_up()

    def open(self, options: SourceOptions | None = None) -> SqliteDatabase:
        return self.world.open(options, self.tables)

    def catch_up(self) -> list[Item]:
        items = items_to_end(self.database, self.fold.position)
        for item in items:
            self.fold.add(item)
        return items

    def restart(self, options: SourceOptions | None = None) -> None:
        """Close the capture, and open it again at its position."""
        self.database.close()
        self.database = self.open(options)

    def rows(self, table: str) -> list[tuple[object, ...]]:
        self.catch_up()
        return [tuple(row.values()) for row in self.fold.rows(table)]

    def assert_equal(self) -> None:
        for table in self.tables:
            assert sorted(self.rows(table.name)) == sorted(self.world.fetch(f"SELECT * FROM {table.name}"))
