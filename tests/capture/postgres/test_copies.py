"""The rules by which chunks and transactions meet. Only the timing is forced: the stream or the chunk is held back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from penstock.capture.postgres.chunks import ChunkReader
from penstock.capture.postgres.copies import TableCopies
from penstock.capture.postgres.replication import ReplicationStream
from penstock.capture.postgres.source import PostgresDatabase
from penstock.contracts import Captured, TableEvent
from tests.capture.database_fold import Fold, Item
from tests.capture.postgres.conftest import database_of
from tests.capture.postgres.reading import fold_of
from tests.servers.postgres import PostgresServer
from tests.servers.starting import wait_until
from tests.servers.wire import Wire


class Gate:
    """Holds something back while it is closed."""

    is_closed = False


@pytest.fixture
def stream_gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate, read = Gate(), ReplicationStream.read
    monkeypatch.setattr(
        ReplicationStream,
        "read",
        lambda self, rows, budget: (budget, None) if gate.is_closed else read(self, rows, budget),
    )
    return gate


@pytest.fixture
def chunk_gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate, has_chunk = Gate(), TableCopies.has_chunk
    monkeypatch.setattr(TableCopies, "has_chunk", property(lambda self: not gate.is_closed and has_chunk.__get__(self)))
    return gate


@pytest.fixture
def notes(server: PostgresServer) -> PostgresServer:
    server.execute("CREATE TABLE notes (id int PRIMARY KEY, v text, body text)")
    server.execute("ALTER TABLE notes ALTER body SET STORAGE EXTERNAL")
    server.execute("INSERT INTO notes SELECT n, 'old', repeat('b', 20000) FROM generate_series(1, 5) n")
    return server


def take(items: Iterator[Item], fold: Fold, is_done: Callable[[Item], object]) -> list[Item]:
    taken: list[Item] = []
    for item in items:
        taken.append(item)
        fold.add(item)
        if is_done(item):
            break
    return taken


def given_ids(items: list[Item]) -> list[int]:
    return [
        row["id"] for item in items if isinstance(item, Captured) and len(item.rows) for row in item.rows.to_pylist()
    ]


def has_rows(item: Item) -> bool:
    return isinstance(item, Captured) and len(item.rows) > 0


def assert_complete(
    server: PostgresServer, database: PostgresDatabase, items: Iterator[Item], fold: Fold
) -> list[Item]:
    end = database.end()
    rest = take(items, fold, lambda _: database.has_reached(fold.position, end))
    rows = server.execute("SELECT id, v, body FROM notes ORDER BY id")
    assert [tuple(row.values()) for row in fold.rows("notes")] == rows
    return rest


def test_changes_that_a_chunk_contains_are_not_given_after_it(notes: PostgresServer, stream_gate: Gate) -> None:
    database = database_of(notes, "notes")
    fold = fold_of(database)
    with closing(database.read(None)) as items:  # type: ignore[type-var]
        fold.add(next(items))
        stream_gate.is_closed = True
        notes.execute("UPDATE notes SET v = 'new' WHERE id = 1")
        notes.execute("UPDATE notes SET v = 'newer' WHERE id = 1")
        notes.execute("DELETE FROM notes WHERE id = 2")
        take(items, fold, has_rows)
        assert fold.rows("notes")[0]["v"] == "newer"
        assert [row["id"] for row in fold.rows("notes")] == [1, 3, 4, 5]
        stream_gate.is_closed = False
        assert 1 not in given_ids(assert_complete(notes, database, items, fold))


def test_rows_of_a_chunk_do_not_replace_newer_changes(notes: PostgresServer, chunk_gate: Gate) -> None:
    database = database_of(notes, "notes")
    fold = fold_of(database)
    with closing(database.read(None)) as items:  # type: ignore[type-var]
        chunk_gate.is_closed = True
        take(items, fold, lambda item: isinstance(item, TableEvent))
        fold.add(next(items))  # the chunk has its snapshot
        notes.execute("UPDATE notes SET v = 'new', body = 'short' WHERE id = 1")
        notes.execute("DELETE FROM notes WHERE id = 2")
        take(items, fold, lambda item: has_rows(item) and 2 in given_ids([item]))
        chunk_gate.is_closed = False
        chunk = take(items, fold, has_rows)
        assert given_ids(chunk[-1:]) == [3, 4, 5]
        assert_complete(notes, database, items, fold)


def test_a_chunk_is_read_again_if_a_newer_change_is_incomplete(notes: PostgresServer, chunk_gate: Gate) -> None:
    database = database_of(notes, "notes")
    fold = fold_of(database)
    with closing(database.read(None)) as items:  # type: ignore[type-var]
        chunk_gate.is_closed = True
        take(items, fold, lambda item: isinstance(item, TableEvent))
        fold.add(next(items))
        notes.execute("UPDATE notes SET v = 'new' WHERE id = 1")
        take(items, fold, has_rows)
        assert fold.rows("notes") == []  # nobody has its body yet
        chunk_gate.is_closed = False
        chunk = take(items, fold, has_rows)
        assert given_ids(chunk[-1:]) == [1, 2, 3, 4, 5]
        assert_complete(notes, database, items, fold)


def test_no_chunk_is_read_while_a_transaction_that_was_given_is_not_visible(notes: PostgresServer) -> None:
    """Commits that wait for a synchronous standby are in the log of the server, and so in the stream already."""
    database = database_of(notes, "notes")
    fold = fold_of(database)
    with closing(database.read(None)) as items, ThreadPoolExecutor(1) as thread:  # type: ignore[type-var]
        fold.add(next(items))
        with commits_that_wait(notes):
            commit = thread.submit(notes.execute, "UPDATE notes SET v = 'new', body = 'short' WHERE id = 1")
            wait_until_it_is_sent(notes)
            taken = take(items, fold, lambda item: has_rows(item) and 1 in given_ids([item]))
            assert "copy begins" not in [item.what for item in taken if isinstance(item, TableEvent)]
            heartbeats = [next(items) for _ in range(5)]
            assert not any(has_rows(item) for item in heartbeats)
            assert not commit.done()
            items.close()  # the position remembers what is not visible
            with closing(database.read(fold.position)) as again:  # type: ignore[type-var]
                assert not any(has_rows(next(again)) for _ in range(5))
        commit.result()
    with closing(database.read(fold.position)) as items:  # type: ignore[type-var]
        assert_complete(notes, database, items, fold)


@contextmanager
def commits_that_wait(server: PostgresServer) -> Iterator[None]:
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.execute("SELECT pg_reload_conf()")
    try:
        wait_until(lambda: server.execute("SHOW synchronous_standby_names") == [("nobody",)], lambda: "no reload")
        yield
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")


def wait_until_it_is_sent(server: PostgresServer) -> None:
    """Until a commit waits for its standby, and the stream has been sent as far as that."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    wait_until(lambda: server.execute(waiting), lambda: "no commit waits")
    ((end,),) = server.execute("SELECT pg_current_wal_flush_lsn()::text")
    sent = f"SELECT 1 FROM pg_stat_replication WHERE sent_lsn >= '{end}'"
    wait_until(lambda: server.execute(sent), lambda: "the stream was not sent")


def test_a_reader_of_chunks_is_closed_also_when_the_server_cannot_be_reached(server: PostgresServer) -> None:
    with closing(Wire(server.port)) as wire:
        reader = ChunkReader(server.url.replace(f":{server.port}/", f":{wire.port}/"))
        reader.snapshot()
        wire.cut()
        reader.close()
