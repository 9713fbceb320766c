"""The catalogue of a log: names, epochs, promises, committed transactions and group offsets, in one SQLite file.

SQLite brings what this needs: several processes, atomic changes, durability. Rows are small and few; the data itself is
never here. The record of a transaction is its commit point (see `transaction`).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DamagedError, DeclarationError, UnavailableError, UnknownOutcomeError
from penstock.log.files import refuse_in_a_fork, refused
from penstock.log.recovery import Outcome

CATALOG_NAME = "catalog.db"
CATALOG_FORMAT = 1
BUSY_SECONDS = 30.0

_TABLES = """
CREATE TABLE producers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL);
CREATE TABLE transactions (id INTEGER PRIMARY KEY);
CREATE TABLE subscriptions (group_name TEXT NOT NULL, topic TEXT NOT NULL, PRIMARY KEY (group_name, topic));
CREATE TABLE offsets (group_name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, PRIMARY KEY (group_name, topic, partition));
CREATE TABLE members (group_name TEXT NOT NULL, member TEXT NOT NULL, topics TEXT NOT NULL, boot BLOB NOT NULL,
    expires REAL NOT NULL, PRIMARY KEY (group_name, member));
CREATE TABLE assignments (group_name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    member TEXT NOT NULL, PRIMARY KEY (group_name, topic, partition));
"""
# Made when the first promise is: catalogues of this format may be without it, and looking must not need a change.
_PROMISES = """
CREATE TABLE IF NOT EXISTS promises (number INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL,
    topic_id TEXT NOT NULL, producer INTEGER NOT NULL, time INTEGER NOT NULL, ends TEXT NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A named producer: `sequence` is that of its last committed transaction, -1 before the first."""

    epoch: int
    sequence: int


class Catalog:
    """One connection for all threads of this process; every change is one short SQLite transaction.

    It is opened when it is first needed: reading a log needs it only to decide a pending transaction, and works on a
    full disk, where SQLite does not.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._path = root / CATALOG_NAME
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._opened: sqlite3.Connection | None = None
        self._closed = False
        self._failure: str | None = None

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One atomic change: on disk when the block has ended, undone when it raises."""
        with self._guard, self._translated():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            self._commit(connection)

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        with self._guard, self._translated():
            yield self._connection()

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise
            # What was written may be found, and believed, when the file is next opened.
            self._failure = f"writing failed: {error}"
            raise UnknownOutcomeError(
                f"{self._path}: {self._failure}; the change may or may not be stored",
                hint="close the log, open it again, and look",
            ) from error

    def _connection(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise UnavailableError(f"{self._path}: {self._failure}", hint="close the log and open it again")
        if self._opened is None:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._opened = connection
        return self._opened

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new catalogue; refuse one of another format."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {CATALOG_FORMAT}")
                version = CATALOG_FORMAT
            connection.execute("COMMIT")
        if version != CATALOG_FORMAT:
            raise DeclarationError(
                f"{self._path}: the catalogue has format {version}; this version of Penstock reads "
                f"format {CATALOG_FORMAT}",
                hint="open the log with the version of Penstock that wrote it",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Say in the user's words what SQLite refuses."""
        refuse_in_a_fork(self._process, self._path.parent)
        if self._closed:
            raise DeclarationError(f"{self._path.parent}: this log is closed", hint="open it again")
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL or self._disk_is_full():
                raise UnavailableError(
                    f"{self._path}: the disk is full. Nothing that was acknowledged is lost",
                    hint="make space and try again",
                ) from error
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
                raise refused(str(self._path), PermissionError(errno.EACCES, "no permission")) from error
            raise UnavailableError(
                f"{self._path}: {error}", hint="another process may hold it; see who does, and try again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise DamagedError(f"{self._path}: {error}", hint="restore the file from a copy") from error

    def _disk_is_full(self) -> bool:
        space = os.statvfs(self._path.parent)
        return space.f_bavail * space.f_frsize < 64 * 1024

    # -- transactions -------------------------------------------------------------------------------------------------

    def outcome(self, transaction: int) -> Outcome:
        with self.look() as connection:
            row = connection.execute("SELECT 1 FROM transactions WHERE id = ?", (transaction,)).fetchone()
        return Outcome.COMMITTED if row else Outcome.UNRECORDED

    def forget_transactions(self, transactions: list[int]) -> None:
        """For transactions whose ends are on disk in every tail, so that nobody will ask again."""
        with self.change() as connection:
            connection.executemany("DELETE FROM transactions WHERE id = ?", [(one,) for one in transactions])

    # -- producers ----------------------------------------------------------------------------------------------------

    def register_producer(self, name: str) -> int:
        with self.change() as connection:
            connection.execute(
                "INSERT INTO producers (name, epoch, sequence) VALUES (?, 0, -1) ON CONFLICT (name) DO NOTHING", (name,)
            )
            (number,) = connection.execute("SELECT id FROM producers WHERE name = ?", (name,)).fetchone()
        return int(number)

    def raise_epoch(self, producer: int) -> int:
        with self.change() as connection:
            connection.execute("UPDATE producers SET epoch = epoch + 1 WHERE id = ?", (producer,))
            (epoch,) = connection.execute("SELECT epoch FROM producers WHERE id = ?", (producer,)).fetchone()
        return int(epoch)

    def producer(self, producer: int) -> ProducerRecord:
        with self.look() as connection:
            row = connection.execute("SELECT epoch, sequence FROM producers WHERE id = ?", (producer,)).fetchone()
        return ProducerRecord(*row)

    def producers(self) -> dict[int, str]:
        with self.look() as connection:
            return dict(connection.execute("SELECT id, name FROM producers").fetchall())

    # -- promises -----------------------------------------------------------------------------------------------------

    @contextmanager
    def change_promises(self) -> Iterator[sqlite3.Connection]:
        """One atomic change, as `change`, with the table of promises there."""
        with self.change() as connection:
            connection.execute(_PROMISES)
            yield connection

    @contextmanager
    def look_at_promises(self) -> Iterator[sqlite3.Connection | None]:
        """As `look`; None where no promise was ever made."""
        with self.look() as connection:
            yield connection if _has_promises(connection) else None

    # -- topics -------------------------------------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        with self.change() as connection:
            for table in ("subscriptions", "offsets", "assignments"):
                connection.execute(f"DELETE FROM {table} WHERE topic = ?", (topic,))
            if _has_promises(connection):
                connection.execute("DELETE FROM promises WHERE topic = ?", (topic,))

    def slowest_offsets(self, topic: str, partitions: int) -> list[int | None]:
        """For each partition how far the slowest group that reads this topic has come; None without any group."""
        with self.look() as connection:
            groups = connection.execute("SELECT group_name FROM subscriptions WHERE topic = ?", (topic,)).fetchall()
            rows = connection.execute(
                "SELECT group_name, partition, next_offset FROM offsets WHERE topic = ?", (topic,)
            ).fetchall()
        if not groups:
            return [None] * partitions
        committed = {(group, partition): offset for group, partition, offset in rows}
        return [min(committed.get((group, partition), 0) for (group,) in groups) for partition in range(partitions)]


def _has_promises(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'promises'").fetchone()
    return found is not None
