"""The catalogue of a log: names, epochs, positions, promises, committed transactions, group offsets, in a SQLite file.

SQLite brings what this needs: several processes, atomic changes, durability. Rows are small and few; the data itself is
never here. The record of a transaction is its commit point (see `transaction`).

Nothing of it is believed unchecked. When it is first needed it must be there, carry the id of the log, have seen every
change that the mark beside it tells of, and be whole: every row, every table, every page. After that each row is
checked as it is read. What does not pass raises DamagedError; `repair` is the way out.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import DamagedError, DeclarationError, UnavailableError, UnknownOutcomeError
from penstock.log.catalog_mark import Mark, load_mark, store_mark
from penstock.log.catalog_rows import (
    COLUMNS,
    add_tables,
    changes_of,
    check_everything,
    check_total,
    count_change,
    create_tables,
    put,
    read_snapshot,
    rows,
)
from penstock.log.identity import Identity, load_identity, new_id, store_identity
from penstock.log.recovery import Outcome
from penstock.storage.files import Disk, Files, disk_error, disk_errors, refuse_in_a_fork

CATALOG_NAME = "catalog.db"
TOPICS_DIRECTORY = "topics"
CATALOG_FORMAT = 3
# Of earlier versions, brought up to date when it is first needed: without checksums, and without positions.
UNCHECKED_FORMAT = 1
CHECKED_FORMAT = 2
BUSY_SECONDS = 30.0
REPAIR_HINT = "restore it with a copy of the whole log, or see with `penstock repair` what can be rebuilt"
# What SQLite and Python raise over bytes that are no database, no row, no text.
UNREADABLE = (sqlite3.Error, MemoryError, UnicodeError, OverflowError)
_PROBLEMS_OF_THE_DISK = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_PROTOCOL,
)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A named producer: `sequence` is that of its last committed transaction, -1 before the first.

    `position` is that of a writer of this name, as JSON; None before the first.
    """

    epoch: int
    sequence: int
    position: str | None = None


class Catalog:
    """One connection for all threads of this process; every change is one short SQLite transaction.

    It is opened when it is first needed: reading a log needs it only to decide a pending transaction, and works on a
    full disk, where SQLite does not.
    """

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root
        self._files = files or Disk()
        self._path = root / CATALOG_NAME
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._opened: sqlite3.Connection | None = None
        self._mark: Mark | None = None
        self._inode = 0
        self._closed = False
        self._failure: str | None = None

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._opened is not None:
                self._opened.close()
            if self._mark is not None:
                self._mark.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One atomic change: on disk when the block has ended, undone when it raises."""
        with self._guard, self._translate_errors():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                changes = count_change(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._commit(connection)
            assert self._mark is not None
            self._mark.move(changes)

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        """Read, all of it as of one moment."""
        with self._guard, self._translate_errors():
            connection = self._connection()
            with read_snapshot(connection):
                yield connection

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
                hint="close the log, open it again, and check",
            ) from error

    def _connection(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise UnavailableError(f"{self._path}: {self._failure}", hint="close the log and open it again")
        if self._opened is None:
            self._open()
        elif self._found_inode() != self._inode:
            raise UnavailableError(
                f"{self._path}: the catalogue was removed or replaced while this log was open",
                hint="close the log and open it again; it then checks what is there",
            )
        assert self._opened is not None
        return self._opened

    def _found_inode(self) -> int:
        try:
            return os.stat(self._path).st_ino
        except FileNotFoundError:
            return 0

    def _open(self) -> None:
        identity = load_identity(self._files, self.root)
        refuse_missing_catalog(self.root, identity)
        connection = connect(self._path)
        try:
            if identity.catalogue != CATALOG_FORMAT:
                identity = bring_up_to_date(self._files, self.root, connection)
            check_catalog(self._files, self.root, connection, identity)
            self._mark = Mark(self._files, self.root, identity.id)
        except BaseException:
            connection.close()
            raise
        self._opened, self._inode = connection, self._found_inode()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Say in the user's words what SQLite refuses."""
        refuse_in_a_fork(self._process, self._path.parent)
        if self._closed:
            raise DeclarationError(f"{self._path.parent}: this log is closed", hint="open it again")
        with catalog_errors(self._path), disk_errors(str(self._path)):
            yield

    # -- transactions -------------------------------------------------------------------------------------------------

    def outcome(self, transaction: int) -> Outcome:
        with self.look() as connection:
            if rows(connection, "transactions", "id = ?", (transaction,)):
                return Outcome.COMMITTED
            check_total(connection, "transactions")  # what is not there makes rows vanish: be sure that it never was
        return Outcome.UNRECORDED

    def forget_transactions(self, transactions: list[int]) -> None:
        """For transactions whose ends are on disk in every tail, so that nobody will ask again."""
        with self.change() as connection:
            connection.executemany(
                "DELETE FROM transactions WHERE id = ?", [(transaction,) for transaction in transactions]
            )

    # -- producers ----------------------------------------------------------------------------------------------------

    def register_producer(self, name: str) -> int:
        with self.change() as connection:
            check_total(connection, "producers")
            known = rows(connection, "producers")
            ids = [number_of(row[0]) for row in known if row[1] == name]
            if ids:
                return ids[0]
            number = 1 + max((number_of(row[0]) for row in known), default=0)
            put(connection, "producers", number, name, 0, -1)
        return number

    def raise_epoch(self, producer: int) -> int:
        with self.change() as connection:
            name, record = _producer(connection, producer)
            put(connection, "producers", producer, name, record.epoch + 1, record.sequence)
        return record.epoch + 1

    def producer(self, producer: int) -> ProducerRecord:
        with self.look() as connection:
            return _producer(connection, producer)[1]

    def writer(self, producer: int) -> ProducerRecord:
        """The same with the position. It is read first: whoever still has the epoch then had it all the time."""
        with self.look() as connection:
            found = rows(connection, "positions", "producer = ?", (producer,))
            if not found:
                check_total(connection, "positions")  # a writer without one starts over: be sure that it has none
            _, record = _producer(connection, producer)
        return replace(record, position=str(found[0][1]) if found else None)

    def producers(self) -> dict[int, str]:
        with self.look() as connection:
            return {number_of(row[0]): str(row[1]) for row in rows(connection, "producers")}

    # -- topics -------------------------------------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        with self.change() as connection:
            for table in ("subscriptions", "offsets", "assignments", "promises"):
                connection.execute(f"DELETE FROM {table} WHERE topic = ?", (topic,))

    def group_positions(self, topic: str) -> dict[str, dict[int, int]]:
        """By group that reads this topic: the offsets that it has committed, of partitions where it has."""
        with self.look() as connection:
            for table in ("subscriptions", "offsets"):
                check_total(connection, table)  # a group that is overlooked loses its say
            groups = rows(connection, "subscriptions", "topic = ?", (topic,))
            offsets = rows(connection, "offsets", "topic = ?", (topic,))
        positions: dict[str, dict[int, int]] = {str(group): {} for group, _ in groups}
        for group, _, partition, offset in offsets:
            if str(group) in positions:
                positions[str(group)][number_of(partition)] = number_of(offset)
        return positions


def _producer(connection: sqlite3.Connection, producer: int) -> tuple[str, ProducerRecord]:
    found = rows(connection, "producers", "id = ?", (producer,))
    if not found:
        raise DamagedError(f"producer {producer} is not in it")
    _, name, epoch, sequence = found[0]
    return str(name), ProducerRecord(number_of(epoch), number_of(sequence))


def record_transaction(connection: sqlite3.Connection, transaction: int) -> None:
    put(connection, "transactions", transaction)


def record_sequence(connection: sqlite3.Connection, producer: int, epoch: int, sequence: int) -> bool:
    """Note that a producer has committed a transaction; False if its epoch was replaced."""
    name, record = _producer(connection, producer)
    if record.epoch != epoch:
        return False
    put(connection, "producers", producer, name, epoch, max(record.sequence, sequence))
    return True


def record_position(connection: sqlite3.Connection, producer: int, position: str) -> None:
    put(connection, "positions", producer, position)


def number_of(value: object) -> int:
    """A number from a row whose checksum was right."""
    assert isinstance(value, int)
    return value


# -- opening ----------------------------------------------------------------------------------------------------------


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA recursive_triggers = ON")  # a row that is replaced is deleted first, and counted so
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_missing_catalog(root: Path, identity: Identity) -> None:
    """Only a log of an earlier version that never had a topic may be without a catalogue."""
    if identity.catalogue > CATALOG_FORMAT:
        raise _unknown_format(root, identity.catalogue)
    path = root / CATALOG_NAME
    if not identity.catalogue and not any((root / TOPICS_DIRECTORY).iterdir()):
        return
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise DamagedError(f"{path}: the catalogue is missing", hint=REPAIR_HINT) from None
    if not size:
        raise DamagedError(f"{path}: the catalogue is empty", hint=REPAIR_HINT)


Contents = Mapping[str, Sequence[Sequence[object]]]


def create_catalog(files: Files, root: Path, log_id: str, contents: Contents, *, changes: int = 1) -> None:
    """Make a catalogue with these rows, on disk when this returns, where there is none."""
    connection = connect(root / CATALOG_NAME)
    try:
        connection.execute("BEGIN IMMEDIATE")
        _fill(connection, log_id, contents, changes)
        connection.execute("COMMIT")
    finally:
        connection.close()
    store_mark(files, root, log_id, changes)


def bring_up_to_date(files: Files, root: Path, connection: sqlite3.Connection) -> Identity:
    """Give a log of an earlier version its id, and its catalogue what is new. Several processes may try at once.

    1. Store the id. 2. Convert the catalogue, in one change. 3. Begin its mark. 4. Store that its format is known from
    now on. A crash after any step is finished by the next to need the catalogue.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        identity = load_identity(files, root)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, UNCHECKED_FORMAT, CHECKED_FORMAT, CATALOG_FORMAT):
            raise _unknown_format(root, version)
        has_mark = identity.catalogue >= CHECKED_FORMAT
        if has_mark:
            check_catalog(files, root, connection, identity)
        if version == 0:
            refuse_tables(connection)
        if not identity.id:
            identity = Identity(new_id())
            store_identity(files, root, identity)  # 1
        if version == CHECKED_FORMAT:
            add_tables(connection, version)
            count_change(connection)
            connection.execute(f"PRAGMA user_version = {CATALOG_FORMAT}")
        elif version != CATALOG_FORMAT:
            contents: Contents = unchecked_rows(connection) if version else {}
            for table in COLUMNS:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            _fill(connection, identity.id, contents, 1)
        connection.execute("COMMIT")  # 2
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    if not has_mark:
        store_mark(files, root, identity.id, 1)  # 3
    identity = Identity(identity.id, CATALOG_FORMAT)
    store_identity(files, root, identity)  # 4
    return identity


def refuse_tables(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise DamagedError("it has tables, but no format")


def _fill(connection: sqlite3.Connection, log_id: str, contents: Contents, changes: int) -> None:
    create_tables(connection, log_id, changes)
    for table, found in contents.items():
        for row in found:
            put(connection, table, *row)
    connection.execute(f"PRAGMA user_version = {CATALOG_FORMAT}")


def unchecked_rows(connection: sqlite3.Connection) -> dict[str, Sequence[Sequence[object]]]:
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise DamagedError(str(problem))
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {
        table: connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        for table, columns in COLUMNS.items()
        if table in tables
    }


def check_catalog(files: Files, root: Path, connection: sqlite3.Connection, identity: Identity) -> None:
    """DamagedError unless this is the catalogue of the log, whole, and no older than it must be."""
    least = load_mark(files, root, identity.id)  # before the catalogue, which others may be changing
    with read_snapshot(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        check_everything(connection, version)
        log_id, changes = changes_of(connection)
    if log_id != identity.id:
        raise DamagedError(f"it belongs to another log (its id is {log_id}, that of this log {identity.id})")
    if version not in (identity.catalogue, CATALOG_FORMAT):  # the second: brought up to date, and not yet noted
        raise DamagedError(f"it has format {version}; {identity.catalogue} was stored")
    if changes < least:
        raise DamagedError(f"it is an older copy: it has seen {changes} changes, and {least} were stored")


def _unknown_format(root: Path, version: int) -> DeclarationError:
    return DeclarationError(
        f"{root / CATALOG_NAME}: the catalogue has format {version}; this version of Penstock reads "
        f"format {CATALOG_FORMAT}",
        hint="open the log with the version of Penstock that wrote it",
    )


@contextmanager
def catalog_errors(path: Path) -> Iterator[None]:
    """Say in the user's words what SQLite refuses, and where what is damaged is."""
    try:
        yield
    except DamagedError as error:
        if str(path) in error.message and error.hint:
            raise
        raise DamagedError(f"{path}: the catalogue is damaged: {error.message}", hint=REPAIR_HINT) from error
    except UNREADABLE as error:
        raise _describe_error(path, error) from error


def _describe_error(path: Path, error: Exception) -> DamagedError | UnavailableError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code != sqlite3.SQLITE_CORRUPT and _disk_is_full(path)):
        return UnavailableError(
            f"{path}: the disk is full. Nothing that was acknowledged is lost", hint="make space and try again"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return disk_error(str(path), PermissionError(errno.EACCES, "no permission"))
    if code in _PROBLEMS_OF_THE_DISK:
        return UnavailableError(f"{path}: {error}", hint="another process may hold it; see who does, and try again")
    return DamagedError(f"{path}: the catalogue is damaged: {error}", hint=REPAIR_HINT)


def _disk_is_full(path: Path) -> bool:
    space = os.statvfs(path.parent)
    return space.f_bavail * space.f_frsize < 64 * 1024
