"""Random transactions of several sessions, while a reader is stopped and resumed at random items: the tables are equal.

The copies are made meanwhile, in chunks of a few rows, so that every kind of overlap of chunks and changes occurs.
"""

from __future__ import annotations

import random
import threading

import psycopg
import pytest

from penstock.contracts import SourceOptions
from tests.capture.database_fold import Fold
from tests.capture.postgres.conftest import database_of
from tests.capture.postgres.reading import catch_up, fold_of, follow
from tests.servers.postgres import PostgresServer

KEYS = 300
BIG = 20_000  # a value that PostgreSQL stores apart, and does not send when it is unchanged


class Session(threading.Thread):
    """Runs random transactions until it is stopped, with savepoints, rollbacks and large ones."""

    def __init__(self, server: PostgresServer, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self.server, self.random, self.stop, self.count = server, random.Random(seed), stop, 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self.server.connect() as connection:
                while not self.stop.is_set():
                    try:
                        with connection.transaction():
                            self.transaction(connection)
                            if self.random.random() < 0.1:
                                raise psycopg.Rollback
                    except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                        continue
                    self.count += 1
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.error = error

    def transaction(self, connection: psycopg.Connection[object]) -> None:
        for _ in range(self.random.choice([1, 1, 2, 5, 120])):
            if self.random.random() < 0.2:
                try:
                    with connection.transaction():
                        self.statement(connection)
                        if self.random.random() < 0.3:
                            raise psycopg.Rollback
                except psycopg.errors.UniqueViolation:
                    continue
            else:
                self.statement(connection)

    def statement(self, connection: psycopg.Connection[object]) -> None:
        key, value = self.random.randrange(KEYS), self.random.randrange(1_000_000)
        kind = self.random.random()
        if kind < 0.35:
            statement = "INSERT INTO t VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
            big = "".join(self.random.choices("abcdefgh", k=100)) * (BIG // 100) if kind < 0.02 else "small"
            connection.execute(statement, [key, value, big])
        elif kind < 0.6:
            connection.execute("UPDATE t SET v = %s WHERE id = %s", [value, key])
        elif kind < 0.75:
            connection.execute("DELETE FROM t WHERE id = %s", [key])
        elif kind < 0.85:
            connection.execute("UPDATE t SET id = %s WHERE id = %s", [self.random.randrange(KEYS), key])
        else:
            connection.execute(
                "INSERT INTO pairs VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", [key % 7, f"k{key}", value]
            )


def assert_equal(server: PostgresServer, fold: Fold) -> None:
    rows = server.execute("SELECT id, v, big FROM t ORDER BY id")
    assert [tuple(row.values()) for row in fold.rows("t")] == rows
    pairs = server.execute('SELECT a, b, n FROM pairs ORDER BY a, b COLLATE "C"')
    assert [tuple(row.values()) for row in fold.rows("pairs")] == pairs


def create_tables(server: PostgresServer) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int, big text)")
    server.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    server.execute("CREATE TABLE pairs (a int, b text, n int, PRIMARY KEY (a, b))")
    server.execute(
        f"INSERT INTO t SELECT n, n, repeat('x', CASE WHEN n % 9 = 0 THEN {BIG} ELSE 3 END) "
        f"FROM generate_series(0, {KEYS}) n"
    )


def run_sessions(server: PostgresServer, seed: int, rounds: int) -> Fold:
    stop = threading.Event()
    sessions = [Session(server, seed * 10 + number, stop) for number in range(3)]
    choice = random.Random(seed)
    options = SourceOptions(name="shop", chunk_rows=choice.choice([7, 40, 1000]), heartbeat_seconds=1.0)
    database = database_of(server, "t", "pairs", options=options)
    fold = fold_of(database)
    for session in sessions:
        session.start()
    try:
        for _ in range(rounds):
            count = choice.randrange(1, 25)
            left = iter(range(count))
            follow(database, fold, lambda _, left=left: next(left, None) is None)
            if choice.random() < 0.15 and fold.position is not None:
                fold.position = database.copy_again(fold.position, ["t"])
    finally:
        stop.set()
        for session in sessions:
            session.join()
    assert [session.error for session in sessions] == [None] * len(sessions)
    catch_up(database, fold)
    return fold


@pytest.mark.parametrize("seed", range(6))
def test_the_tables_are_equal_after_random_transactions(server: PostgresServer, seed: int) -> None:
    create_tables(server)
    assert_equal(server, run_sessions(server, seed, rounds=25))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_tables_are_equal_after_many_random_transactions(server: PostgresServer, seed: int) -> None:
    create_tables(server)
    assert_equal(server, run_sessions(server, seed, rounds=120))
