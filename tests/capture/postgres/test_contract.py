"""PostgreSQL keeps the contract of databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.databases import open_database
from tests.capture.database_contract import DatabaseContract, catch_up, contents, items_to_end, new_fold, opened
from tests.capture.database_fold import Item
from tests.capture.database_world import TABLES, DatabaseWorld, Remove, SqlWorld, Update, account, pair
from tests.servers.postgres import PostgresServer
from tests.servers.starting import wait_until


class PostgresWorld(SqlWorld):
    secret = "a-secret-word"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.connection = server.connect()
        self.execute(*self.DDL)

    def execute(self, *statements: str) -> None:
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement.encode())

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def open(self, options: SourceOptions | None = None, tables: Sequence[SourceTable] | None = None) -> Database:
        asked = [SourceTable(name) for name in TABLES] if tables is None else tables
        url = self.server.url_of("postgres", self.secret or "")
        return open_database(url, asked, options or SourceOptions())

    def open_unreachable(self) -> Database:
        url = f"postgresql://postgres:{self.secret}@127.0.0.1:1/postgres"
        return open_database(url, [SourceTable(name) for name in TABLES], SourceOptions())

    def lose_changes(self) -> bool:
        (name,) = self.fetch("SELECT slot_name FROM pg_replication_slots")[0]
        wait_until(lambda: not self.fetch("SELECT 1 FROM pg_replication_slots WHERE active"))
        self.execute(f"SELECT pg_drop_replication_slot('{name}')")
        return True

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def world(server: PostgresServer) -> Iterator[PostgresWorld]:
    world = PostgresWorld(server)
    yield world
    world.close()


def by_table(items: Sequence[Item]) -> dict[str, list[tuple[str, object]]]:
    return {table: [pair for pair in contents(items) if pair[0] == table] for table in TABLES}


class TestPostgresDatabase(DatabaseContract):
    """All of it. Only the rows of a table have an order: transactions that are read together are decoded by table."""

    def test_from_every_position_behind_the_copy_it_gives_exactly_what_follows(self, world: DatabaseWorld) -> None:
        fold = new_fold()
        world.run(account(1))
        catch_up(world, fold)
        for number in range(2, 6):
            world.run(account(number, "new"), pair(number, "x"), Update("accounts", {"id": 1}, {"amount": number}))
        world.run(Remove("accounts", {"id": 3}))
        with opened(world) as database:
            items = items_to_end(database, fold.position)
        places = [(index + 1, item.position) for index, item in enumerate(items) if item.position is not None]
        for index, position in [(0, fold.position), *places]:
            with opened(world) as database:
                assert by_table(items_to_end(database, position)) == by_table(items[index:])
