"""A PostgreSQL server for the tests of this folder, with an empty schema for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.capture.postgres.source import PostgresDatabase
from penstock.contracts import SourceOptions, SourceTable
from tests.servers.postgres import PostgresServer

Open = Callable[..., PostgresDatabase]


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PostgresServer]:
    """It streams transactions that have more than 64 kB."""
    server = PostgresServer(logical_decoding_work_mem="64kB").start()
    yield server
    server.remove()


@pytest.fixture
def server(shared_server: PostgresServer) -> Iterator[PostgresServer]:
    yield shared_server
    clean(shared_server)


def clean(server: PostgresServer) -> None:
    """Remove what a test left behind."""
    server.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL")
    for (name,) in server.execute("SELECT slot_name FROM pg_replication_slots"):
        server.execute("SELECT pg_drop_replication_slot(%s)", [name])
    for (name,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f'DROP PUBLICATION "{name}"')
    server.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO public")


def database_of(
    server: PostgresServer, *tables: str | SourceTable, url: str | None = None, options: SourceOptions | None = None
) -> PostgresDatabase:
    asked = [table if isinstance(table, SourceTable) else SourceTable(table) for table in tables]
    chosen = options or SourceOptions(name="shop", chunk_rows=100, heartbeat_seconds=1.0)
    return PostgresDatabase(url or server.url, asked, chosen)
