"""Queries of the tables of the user, and how much of their rows to take at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.capture.sqlite.rows import RowShape
from penstock.capture.sqlite.schema import quoted
from penstock.capture.sqlite.types import Value

_PAGE_BYTES = 16 * 1024 * 1024

T = TypeVar("T")


def copy_query(shape: RowShape, after: Sequence[Value] | None) -> tuple[str, Sequence[Value]]:
    """The rows of a table behind a key, in the order of the key."""
    keys = ", ".join(quoted(name) for name in shape.table.key)
    behind = f"WHERE ({keys}) > ({', '.join('?' for _ in shape.table.key)}) " if after is not None else ""
    return f"SELECT {shape.selection} FROM {quoted(shape.table.name)} {behind}ORDER BY {keys}", after or ()


def refuse_null_keys(connection: sqlite3.Connection, shape: RowShape) -> None:
    """SQLite allows null in some keys. Such rows would be left out, since null is not greater than any key."""
    for name in shape.table.key:
        column = shape.table.column(name)
        is_rowid = column.declared.upper() == "INTEGER" and len(shape.table.key) == 1
        if column.is_not_null or is_rowid:
            continue
        query = f"SELECT {shape.selection} FROM {quoted(shape.table.name)} WHERE {quoted(name)} IS NULL LIMIT 1"
        if rows := connection.execute(query).fetchall():
            shape.to_batch(rows)  # raises an error that names the column


def fitting_rows(rows: int, size: int, *, most: int) -> int:
    """How many rows to take next, if those before had this size: few of large rows, so that memory stays flat."""
    return max(1, min(most, rows * 2, _PAGE_BYTES * rows // max(size, 1)))


def read_leniently(connection: sqlite3.Connection, read: Callable[[], T]) -> T:
    """Read; where a text is not UTF-8, read again in a way that lets the conversion name it."""
    try:
        return read()
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    try:
        return read()
    finally:
        connection.text_factory = str
