"""Connections to the SQLite file: opening it for writing and for reading, transactions, and errors in plain words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from penstock.derive.sqlite.format import APPLICATION_ID, FORMAT, PAGE_SIZE, TABLES
from penstock.errors import DamagedError, DeclarationError, PenstockError, UnavailableError

# How large the WAL grows before a checkpoint: fewer and larger checkpoints are faster, but make the WAL longer.
CHECKPOINT_BYTES = 32 * 1024 * 1024
CACHE_KIBIBYTES = 64 * 1024


def open_for_writing(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    """Open the file, or create it. Whatever is committed is on disk: WAL mode, synchronous = FULL."""
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        (size,) = connection.execute("PRAGMA page_count").fetchone()
        if size:
            check_format(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
        # Deleted data is overwritten where its page is written anyway; TRUE would write extra pages only for that.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // PAGE_SIZE}")
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        _create_tables(connection)
        check_format(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file. If several processes open it at once, only one of them does."""
    if _read_format(connection) != (0, 0):
        return
    connection.execute("BEGIN IMMEDIATE")
    if _read_format(connection) == (0, 0):
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def open_for_reading(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    """Open an existing file. sqlite3 converts columns by their declared types."""
    if not path.exists():
        raise DeclarationError(f"{path}: there are no views here", hint="run the app first; it makes its views")
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        detect_types=sqlite3.PARSE_DECLTYPES,
    )
    try:
        check_format(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Raise DeclarationError for a file that Penstock did not write, or that has another format."""
    application, version = _read_format(connection)
    if application == 0 and version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        return  # the process that created the file was killed before it created the tables
    if application != APPLICATION_ID:
        raise DeclarationError(
            f"{path}: this is not a file of views, but another SQLite database", hint="give the views another path"
        )
    if version != FORMAT:
        raise DeclarationError(
            f"{path}: the views have format {version}; this version of Penstock reads format {FORMAT}",
            hint="use the version of Penstock that wrote them, or remove the file and build them again: "
            "penstock run --rebuild",
        )


def _read_format(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(application), int(version)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one transaction: on disk when the block ends, rolled back if it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Some errors have already ended the transaction. If even ROLLBACK fails, the next start undoes it.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite in this block as errors of Penstock, in the user's words."""
    try:
        yield
    except sqlite3.Error as error:
        raise sqlite_error(path, error) from error


def sqlite_error(path: Path, error: sqlite3.Error) -> PenstockError:
    """An error of SQLite in the user's words."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return UnavailableError(
            f"{path}: another process holds the file locked", hint="see who has it open for writing, and try again"
        )
    if code == sqlite3.SQLITE_FULL:
        return UnavailableError(f"{path}: disk full; nothing was applied", hint="make space and try again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return UnavailableError(
            f"{path}: it cannot be opened or written; {error}",
            hint="check who owns the file and its folder, and as whom this process runs",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedError(
            f"{path}: the file is damaged; {error}",
            hint=f"stop the app, remove {path.name}, {path.name}-wal and {path.name}-shm, and build the views "
            f"again from the log: penstock run --rebuild",
        )
    return UnavailableError(f"{path}: {error}; nothing was applied", hint="check the disk and try again")
