"""Whether a file still has the history that a reader has read: the same file, its reader, its last change."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from penstock.capture.sqlite.installation import read_identity, tables_of_reader
from penstock.capture.sqlite.triggers import CHANGES
from penstock.errors import ChangesLostError


def find_lost_history(
    connection: sqlite3.Connection, reader: str, database: str, change: tuple[int, int]
) -> str | None:
    """Why the file no longer has the changes behind a change (its id and time); None if it has all of them."""
    if read_identity(connection) != database:
        return "it is not the file that was captured before, or the change tables were removed from it"
    if tables_of_reader(connection, reader) is None:
        return "they were not retained for this capture: it was removed, or exceeded its max_retained_bytes"
    number, at = change
    if connection.execute(f"SELECT at FROM {CHANGES} WHERE id = ?", (number,)).fetchone() != (at,):
        return "its change table has another history, as after restoring a backup"
    return None


def lost_changes_error(path: Path, reason: str, capture: str) -> ChangesLostError:
    return ChangesLostError(
        f"{path}: the changes after the stored position are lost; {reason}",
        hint=f"copy its tables again: penstock capture snapshot {capture}",
    )
