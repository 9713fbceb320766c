"""MariaDB as a world of the conformance suite, and what other tests of it need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.databases import open_database
from tests.capture.database_world import TABLES, SqlWorld
from tests.servers.mariadb import PASSWORD, MariaDBServer
from tests.servers.starting import free_port

_NUMBERS = count(1)


class MariaDBWorld(SqlWorld):
    """A database of its own in a server."""

    secret = PASSWORD

    def __init__(self, server: MariaDBServer, ddl: Sequence[str] = SqlWorld.DDL) -> None:
        self.server = server
        self.database = f"shop{next(_NUMBERS)}"
        server.execute(f"CREATE DATABASE {self.database} CHARACTER SET utf8mb4")
        self.connection = server.connect(self.database, autocommit=False)
        self.execute("SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')")
        self.execute(*ddl)

    def execute(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        self.connection.commit()

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.execute(query, database=self.database)

    def open(self, options: SourceOptions | None = None, tables: Sequence[SourceTable] | None = None) -> Database:
        captured = [SourceTable(name) for name in TABLES] if tables is None else tables
        return open_database(self.server.url_of(self.database), captured, options or SourceOptions())

    def open_unreachable(self) -> Database | None:
        url = f"mariadb://capture:{PASSWORD}@127.0.0.1:{free_port()}/shop"
        return open_database(url, [SourceTable(name) for name in TABLES], SourceOptions())

    def lose_changes(self) -> bool:
        self.server.purge_logs()
        return True

    def close(self) -> None:
        self.connection.close()
        self.server.execute(f"DROP DATABASE {self.database}")
