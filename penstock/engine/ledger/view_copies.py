"""Copying the views of an app out of their store and back, each at one moment, while others read and write.

Both ways are SQLite's own backup, in one step: copying out reads one snapshot, and putting back is one transaction, so
that a reader sees the views of before or of after, and a crash leaves one of them. The store's file is never replaced:
a write-ahead log left beside another file would be taken for its own.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from penstock.derive.connection import check_format, plain_faults
from penstock.derive.place import STORE_NAME
from penstock.errors import DeclarationError, UnavailableError

# No name of a savepoint begins with a dot.
RESTORING_NAME = ".restoring.sqlite"
BUSY_SECONDS = 30.0


class Views(Protocol):
    """The views of one app as savepoints need them."""

    def epoch(self) -> int | None:
        """The last epoch the views hold; None if the app has no store."""

    def copy_out(self, target: Path) -> int | None:
        """Write all views, as they are at one moment, to `target` and sync it. Returns their epoch, or None as above.

        A file that a crash has left at `target` is replaced.
        """

    def put_back(self, source: Path, *, epoch: int, token: int) -> None:
        """Make the views those of `source`, as of `epoch` and written by `token`: all or nothing, and on disk.

        It may be repeated.
        """


class StoredViews:
    """The views in the store of the app's folder."""

    def __init__(self, directory: Path, app: str) -> None:
        self._store = directory / STORE_NAME
        self._app = app

    def epoch(self) -> int | None:
        if not self._store.exists():
            return None
        with _connection(self._store) as store:
            return self._epoch_in(store)

    def copy_out(self, target: Path) -> int | None:
        if not self._store.exists():
            return None
        _remove(target)
        with _connection(self._store) as store, _connection(target) as copy:
            check_format(store, self._store)
            _copy(store, copy, self._store)
            # One file, that can be opened without leaving others beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
            return self._epoch_in(copy)

    def put_back(self, source: Path, *, epoch: int, token: int) -> None:
        restoring = source.with_name(RESTORING_NAME)
        _remove(restoring)
        shutil.copyfile(source, restoring)
        try:
            with _connection(restoring) as prepared, _connection(self._store) as store:
                self._stamp(prepared, epoch, token)
                _copy(prepared, store, self._store)
        finally:
            _remove(restoring)

    def _epoch_in(self, store: sqlite3.Connection) -> int:
        row = store.execute("SELECT epoch FROM penstock_epochs WHERE app = ?", (self._app,)).fetchone()
        return 0 if row is None else int(row[0])

    def _stamp(self, prepared: sqlite3.Connection, epoch: int, token: int) -> None:
        changed = prepared.execute(
            "UPDATE penstock_epochs SET epoch = ?, token = ? WHERE app = ?", (epoch, token, self._app)
        )
        if changed.rowcount != 1:
            raise DeclarationError(f"app '{self._app}': the savepoint holds the views of another app")


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Every statement is a transaction of its own, on disk when it returns."""
    with plain_faults(path), closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        yield connection


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, store: Path) -> None:
    source.backup(target, progress=_patience(store))


def _patience(store: Path) -> Callable[[int, int, int], None]:
    """SQLite's backup waits for a locked file for ever; this gives up."""
    deadline = time.monotonic() + BUSY_SECONDS

    def look(status: int, remaining: int, total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > deadline:
            raise UnavailableError(
                f"{store}: still locked after {BUSY_SECONDS:g} seconds; the views are as they were",
                hint="see who holds the file, and try again",
            )

    return look


def _remove(path: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
