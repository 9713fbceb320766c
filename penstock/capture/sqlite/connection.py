"""Connections to the file of a user: they never create it, hold locks for moments, and raise errors in plain words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from penstock.errors import DamagedError, DeclarationError, PenstockError, UnavailableError

WAIT_SECONDS = 5.0
"""How long to wait for a lock of somebody else, before the pump is told to try later."""

BRIEF_WAIT_SECONDS = 0.05
"""The same for what can be left for later, such as removing changes that everybody has."""


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file. UnavailableError if it is not there."""
    with sqlite_errors(path):
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=rw",
            uri=True,
            timeout=WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything in the block sees the file as of one moment. Keep it short: it may keep writers from committing."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        _roll_back(connection)


@contextmanager
def writing(connection: sqlite3.Connection, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """One transaction: committed when the block ends, rolled back if it raises. It waits for other writers first."""
    connection.execute(f"PRAGMA busy_timeout = {int(wait_seconds * 1000)}")
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)
        connection.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite in this block as errors of Penstock."""
    try:
        yield
    except sqlite3.Error as error:
        raise sqlite_error(path, error) from error


def sqlite_error(path: Path, error: sqlite3.Error) -> PenstockError:
    """An error of SQLite in the words of the user."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return UnavailableError(f"{path}: another process has locked the file", hint="wait until it has committed")
    if code == sqlite3.SQLITE_FULL:
        return UnavailableError(f"{path}: the disk is full; {error}", hint="make space and try again")
    if code == sqlite3.SQLITE_CANTOPEN and not path.exists():
        return UnavailableError(
            f"{path}: there is no such file", hint="check the URL: sqlite:////data/shop.db is absolute"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return UnavailableError(
            f"{path}: it cannot be opened or written; {error}",
            hint="capturing adds triggers to the file, so it needs write access to the file and its folder",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return DeclarationError(f"{path}: this is not a SQLite database; {error}")
    if code == sqlite3.SQLITE_CORRUPT:
        return DamagedError(f"{path}: the file is damaged; {error}", hint="PRAGMA integrity_check says where")
    if code == sqlite3.SQLITE_ERROR:
        return DeclarationError(f"{path}: SQLite refuses a statement; {error}")
    return UnavailableError(f"{path}: {error}", hint="check the disk and try again")
