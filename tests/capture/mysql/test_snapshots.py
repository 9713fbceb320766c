"""The claim on which copies rest: a snapshot is the table exactly as of the place that the server names.

Many sessions commit at once, and the fold of the log up to the place of a snapshot must equal the snapshot.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from penstock.capture.mysql.binlog import BinlogStream
from penstock.capture.mysql.catalog import captured_table
from penstock.capture.mysql.charsets import load_charsets
from penstock.capture.mysql.connection import Address, session
from penstock.capture.mysql.follow import Follower
from penstock.capture.mysql.position import Place, decode_position
from penstock.contracts import COMMIT_TIME, SourceOptions, SourceTable
from tests.capture.database_contract import assert_equal_to_source, catch_up, new_fold, opened
from tests.capture.database_fold import Fold
from tests.capture.database_world import TABLES
from tests.capture.mysql.world import MariaDBWorld
from tests.servers.mariadb import PASSWORD, MariaDBServer

SESSIONS = 6


class Writers:
    """Sessions that write random transactions until they are told to stop."""

    def __init__(self, world: MariaDBWorld, *, seed: int, transactions: int | None = None) -> None:
        self._world, self._transactions = world, transactions
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(seed + n,)) for n in range(SESSIONS)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert not self._failures, self._failures

    @property
    def are_writing(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            with self._world.server.connect(self._world.database, autocommit=False) as connection:
                count = 0
                while not self._stop.is_set() and count != self._transactions:
                    count += 1
                    self._transaction(connection, chance)
        except Exception as error:  # noqa: BLE001 - it is raised in the thread of the test
            self._failures.append(error)

    def _transaction(self, connection: Any, chance: random.Random) -> None:
        with connection.cursor() as cursor:
            try:
                for _ in range(chance.choice([1, 1, 2, 5])):
                    cursor.execute(random_statement(chance))
            except Exception as error:
                if getattr(error, "args", [0])[0] not in (1213, 1205, 1062, 1020):  # deadlocks and keys that exist
                    raise
                connection.rollback()
                return
        connection.rollback() if chance.random() < 0.1 else connection.commit()


def random_statement(chance: random.Random) -> str:
    number, amount = chance.randrange(60), chance.randrange(1000)
    return chance.choice(
        [
            f"INSERT INTO accounts VALUES ({number}, 'n', {amount}) ON DUPLICATE KEY UPDATE amount = {amount}",
            f"REPLACE INTO accounts VALUES ({number}, 'r', {amount})",
            f"UPDATE accounts SET amount = amount + 1 WHERE id BETWEEN {number} AND {number + 5}",
            f"UPDATE accounts SET id = {chance.randrange(60)} WHERE id = {number}",
            f"DELETE FROM accounts WHERE id = {number}",
            f"REPLACE INTO pairs VALUES ({number % 7}, '{amount % 9}', 'x')",
            f"DELETE FROM pairs WHERE a = {number % 7} AND b > '{amount % 9}'",
        ]
    )


@pytest.fixture(params=["0", "1"], ids=["sync_binlog=0", "sync_binlog=1"])
def busy_world(request: pytest.FixtureRequest) -> Iterator[MariaDBWorld]:
    server = MariaDBServer(sync_binlog=request.param, innodb_flush_log_at_trx_commit="1")
    try:
        yield MariaDBWorld(server.start())
    finally:
        server.remove()


def test_a_snapshot_equals_the_log_up_to_its_place(busy_world: MariaDBWorld) -> None:
    fold = new_fold()
    catch_up(busy_world, fold)
    with Writers(busy_world, seed=1), opened(busy_world) as database:
        for _ in range(25):
            snapshot = database.snapshot("accounts")
            rows = [row for batch in snapshot.batches for row in batch.to_pylist()]
            fold = fold_up_to(busy_world, fold, snapshot.end)
            for row in rows:
                del row[COMMIT_TIME]
            assert sorted(rows, key=lambda row: row["id"]) == fold.rows("accounts")
    catch_up(busy_world, fold)
    assert_equal_to_source(fold, busy_world)


def fold_up_to(world: MariaDBWorld, fold: Fold, end: Any) -> Fold:
    """Apply what is before an end, and nothing behind it, as the reading of a copy does."""
    address = Address("127.0.0.1", world.server.port, "capture", PASSWORD, world.database, "shown")
    position, place = decode_position(fold.position or {}), Place(end["file"], end["byte"])
    assert position.place is not None
    with session(address) as connection:
        tables = [captured_table(SourceTable(name), world.database) for name in TABLES]
        follower = Follower(tables, position, load_charsets(connection), frozenset(), "shown")
    stream = BinlogStream(address, position.place, server_id=12345, file_time=0, name="test")
    while follower.position.place is not None and follower.position.place.is_before(place):
        found = stream.next_event(30)
        assert found is not None
        for item in follower.apply(*found, stream.place, stream.file_time):
            fold.add(item)
    stream.close()
    for item in follower.flush():
        fold.add(item)
    assert follower.position.place == place, "the place of a snapshot is between two transactions"
    return fold


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_is_interrupted_everywhere_equals_the_source(world: MariaDBWorld, seed: int) -> None:
    """Read with random stops, from random connections, while sessions write; the copy begins in the middle."""
    chance, fold = random.Random(seed), new_fold()
    with Writers(world, seed=100 * seed, transactions=60) as writers:
        while writers.are_writing:
            options = SourceOptions(chunk_rows=chance.choice([1, 3, 10]))
            with opened(world, options) as database, closing(database.read(fold.position)) as items:  # type: ignore[type-var]
                for _ in range(chance.choice([1, 2, 3, 30])):
                    fold.add(next(items))
            fold.forget_open_items()
            if chance.random() < 0.1 and fold.position is not None:
                with opened(world) as database:
                    fold.position = database.copy_again(fold.position, ["accounts"])
    catch_up(world, fold)
    assert_equal_to_source(fold, world)
