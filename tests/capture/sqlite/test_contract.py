"""SQLite keeps the contract of databases, in both kinds of journal and with tables without rowids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.database_contract import DatabaseContract
from tests.capture.sqlite.world import SqliteWorld


class TestWriteAheadLog(DatabaseContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> SqliteWorld:
        return SqliteWorld(tmp_path / "a shop.db")


class TestRollbackJournalWithoutRowids(DatabaseContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> SqliteWorld:
        ddl = [f"{statement} WITHOUT ROWID" for statement in SqliteWorld.DDL]
        return SqliteWorld(tmp_path / "shop.db", journal_mode="delete", ddl=ddl)
