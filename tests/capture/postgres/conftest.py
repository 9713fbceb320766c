"""A PostgreSQL server for the tests of this folder, with an empty schema for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.capture.postgres.source import PostgresDatabase
from penstock.contracts import SourceOptions, SourceTable
from tests.servers.postgres import PostgresServer

_DROP_ALL = """
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL
"""


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PostgresServer]:
    server = PostgresServer(logical_decoding_work_mem="64kB", wal_sender_timeout="20s").start()
    yield server
    server.remove()


@pytest.fixture
def server(shared_server: PostgresServer) -> Iterator[PostgresServer]:
    shared_server.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO public")
    yield shared_server
    for (name,) in shared_server.execute("SELECT slot_name FROM pg_replication_slots"):
        open_database(shared_server, "none", slot=name).remove()
    for (name,) in shared_server.execute("SELECT pubname FROM pg_publication"):
        shared_server.execute(f'DROP PUBLICATION "{name}"')


def open_database(
    server: PostgresServer, *tables: str | SourceTable, user: str = "postgres", slot: str = "", **options: object
) -> PostgresDatabase:
    asked = [table if isinstance(table, SourceTable) else SourceTable(table) for table in tables]
    database = PostgresDatabase(
        server.url_of(user),
        asked,
        SourceOptions(**{"name": "shop", "chunk_rows": 100, "heartbeat_seconds": 1.0, **options}),  # type: ignore[arg-type]
    )
    if slot:
        database._slot = slot
    return database
