"""Keeps the change table small: what every reader has confirmed is removed, a little at a time.

Writers of the user never wait for it long: each step is a short transaction, and if the file is locked, it is left for
later. The last confirmed change stays, since positions refer to it.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from penstock.capture.sqlite.connection import BRIEF_WAIT_SECONDS, reading, writing
from penstock.capture.sqlite.installation import last_change, read_identity
from penstock.capture.sqlite.triggers import CHANGES, NOW, READERS

_STEP_ROWS = 2_000
_SECONDS_AT_ONCE = 0.2
_SAMPLE_ROWS = 100
_ROW_BYTES = 12  # what SQLite adds to the values of a row, about

_AWAY_MILLISECONDS = 60_000
"""A reader that has confirmed nothing for so long may lose its place, if its changes take more than it allows."""


@dataclass(slots=True)
class Upkeep:
    """Of one reader. `confirmed` is what it has been told, `stored` what the file knows of it."""

    connection: sqlite3.Connection
    reader: str
    confirmed: int = 0
    stored: int = 0
    _is_behind: bool = False

    def clean(self) -> None:
        """Store what was confirmed, and remove what nobody needs. Does nothing if the file is locked."""
        if self.confirmed <= self.stored and not self._is_behind:
            return
        deadline = time.monotonic() + _SECONDS_AT_ONCE
        try:
            self._store_confirmed()
            self._is_behind = True
            while self._is_behind and time.monotonic() < deadline:
                self._is_behind = self._remove_some()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise

    def _store_confirmed(self) -> None:
        with writing(self.connection, wait_seconds=BRIEF_WAIT_SECONDS):
            if read_identity(self.connection) is None:
                return
            self.connection.execute(
                f"UPDATE {READERS} SET confirmed = max(confirmed, ?), seen_at = {NOW} WHERE name = ?",
                (self.confirmed, self.reader),
            )
            self._release_places()
        self.stored = self.confirmed

    def _remove_some(self) -> bool:
        """Remove the oldest changes that everybody has. Returns whether there are more of them."""
        with writing(self.connection, wait_seconds=BRIEF_WAIT_SECONDS):
            if read_identity(self.connection) is None:
                return False
            (needed,) = self.connection.execute(f"SELECT min(confirmed) FROM {READERS}").fetchone()
            (oldest,) = self.connection.execute(f"SELECT min(id) FROM {CHANGES}").fetchone()
            if needed is None or oldest is None or oldest >= needed:
                return False
            end = min(needed, oldest + _STEP_ROWS)
            self.connection.execute(f"DELETE FROM {CHANGES} WHERE id < ?", (end,))
            return bool(end < needed)

    def _release_places(self) -> None:
        """Give up the places of other readers that are away and retain more than they allow."""
        last, _ = last_change(self.connection)
        rows = self.connection.execute(
            f"SELECT name, confirmed, most_bytes FROM {READERS} "
            f"WHERE most_bytes IS NOT NULL AND name <> ? AND seen_at < {NOW} - {_AWAY_MILLISECONDS}",
            (self.reader,),
        ).fetchall()
        for name, confirmed, most_bytes in rows:
            if bytes_of_changes(self.connection, confirmed, last) > most_bytes:
                self.connection.execute(f"DELETE FROM {READERS} WHERE name = ?", (name,))


def bytes_of_changes(connection: sqlite3.Connection, after: int, last: int) -> int:
    """About how many bytes the changes behind an id take, judged by the last of them."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({CHANGES})") if row[1].startswith("v")]
    lengths = " + ".join(["0", *(f"ifnull(length({column}), 0)" for column in columns)])
    (mean,) = connection.execute(
        f"SELECT avg({lengths}) FROM (SELECT * FROM {CHANGES} ORDER BY id DESC LIMIT {_SAMPLE_ROWS})"
    ).fetchone()
    return int((last - after) * ((mean or 0) + _ROW_BYTES + len(columns)))


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the change table holds. `last_commit` is in milliseconds since 1970."""

    rows_behind: int
    bytes_behind: int
    bytes_retained: int
    last_commit: int


def read_backlog(connection: sqlite3.Connection, position: int) -> Backlog:
    """The changes behind a position, and all that are there."""
    with reading(connection):
        last, at = last_change(connection)
        (oldest,) = connection.execute(f"SELECT min(id) FROM {CHANGES}").fetchone()
        return Backlog(
            rows_behind=last - position,
            bytes_behind=bytes_of_changes(connection, position, last),
            bytes_retained=bytes_of_changes(connection, (oldest or 1) - 1, last),
            last_commit=at,
        )
