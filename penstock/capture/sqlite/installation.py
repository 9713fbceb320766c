"""What capturing adds to a file: its tables, the triggers of each table, and the readers. Callers hold a transaction.

A layout is what the triggers of a table store: its columns at that time. It has a number, which is stored with every
change. When the table was altered, the triggers are created anew with a new layout.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.capture.sqlite.schema import TableSchema, quoted
from penstock.capture.sqlite.triggers import (
    CHANGES,
    DELETED,
    FORMAT,
    IDENTITY,
    LAYOUTS,
    MARKER,
    NOW,
    READERS,
    REPLACED,
    TABLES,
    trigger_names,
    trigger_statements,
)
from penstock.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Layout:
    """A table as its triggers store it.

    `is_continued`: the triggers before it were in place until then, and existing rows have no value in the columns that
    were added. So who has seen all rows of the layout before needs no copy.
    """

    id: int
    table: TableSchema
    is_continued: bool


def read_identity(connection: sqlite3.Connection) -> str | None:
    """The identity of the file; None if nothing is installed. DeclarationError if another version has installed it."""
    (count,) = connection.execute(
        f"SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ({_marks(TABLES)})", tuple(TABLES)
    ).fetchone()
    if count < len(TABLES):
        return None
    row = connection.execute(f"SELECT id, format FROM {IDENTITY}").fetchone()
    if row is None:
        return None
    if row[1] != FORMAT:
        raise DeclarationError(
            f"the change tables have format {row[1]}; this version of Penstock knows format {FORMAT}",
            hint="capture with the version of Penstock that has installed them",
        )
    return str(row[0])


def install_tables(connection: sqlite3.Connection) -> str:
    """Create what is missing of the tables. Returns the identity of the file."""
    identity = read_identity(connection)
    if identity is not None:
        return identity
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")
    connection.execute(f"DELETE FROM {IDENTITY}")
    identity = secrets.token_hex(8)
    connection.execute(f"INSERT INTO {IDENTITY} VALUES (?, ?)", (identity, FORMAT))
    return identity


def read_layouts(connection: sqlite3.Connection) -> dict[int, Layout]:
    """All layouts that there have been, by number."""
    rows = connection.execute(f"SELECT id, description, is_continued FROM {LAYOUTS} ORDER BY id")
    return {number: Layout(number, TableSchema.from_json(json.loads(text)), bool(flag)) for number, text, flag in rows}


def current_layout(connection: sqlite3.Connection, table: TableSchema, layouts: Iterable[Layout]) -> Layout | None:
    """The layout of a table whose triggers are as they should be; None if they must be created anew."""
    latest = _latest(table.name, layouts)
    return latest if latest is not None and latest.table == table and _are_triggers_intact(connection, latest) else None


def install_triggers(connection: sqlite3.Connection, table: TableSchema) -> None:
    """Create the triggers of a table, unless they are as they should be."""
    layouts = read_layouts(connection).values()
    if current_layout(connection, table, layouts) is not None:
        return
    latest = _latest(table.name, layouts)
    is_continued = (
        latest is not None and _are_triggers_intact(connection, latest) and not _has_new_values(latest.table, table)
    )
    cursor = connection.execute(
        f"INSERT INTO {LAYOUTS} (name, description, is_continued) VALUES (?, ?, ?)",
        (table.name, json.dumps(table.to_json()), is_continued),
    )
    _add_columns(connection, CHANGES, [f"v{number}" for number in range(len(table.columns))])
    _add_columns(connection, REPLACED, [f"k{number}" for number in range(len(table.key))])
    drop_triggers(connection, table.name)
    assert cursor.lastrowid is not None
    for statement in trigger_statements(table, cursor.lastrowid).values():
        connection.execute(statement)


def drop_triggers(connection: sqlite3.Connection, table: str) -> None:
    for name in trigger_names(table):
        connection.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")


def _latest(name: str, layouts: Iterable[Layout]) -> Layout | None:
    return next((layout for layout in reversed(list(layouts)) if layout.table.name == name), None)


def _are_triggers_intact(connection: sqlite3.Connection, layout: Layout) -> bool:
    names = trigger_names(layout.table.name)
    rows = connection.execute(
        f"SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name IN ({_marks(names)})",
        (layout.table.name, *names),
    )
    return dict(rows.fetchall()) == trigger_statements(layout.table, layout.id)


def _has_new_values(before: TableSchema, table: TableSchema) -> bool:
    """Whether rows that exist may have values in columns that are new."""
    return any(column.has_default for column in table.columns if column.name not in before.names)


def _add_columns(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
    existing = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    for column in columns:
        if column not in existing:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


# -- readers ----------------------------------------------------------------------------------------------------------


def register_reader(
    connection: sqlite3.Connection, reader: str, tables: Sequence[str], most_bytes: int | None
) -> tuple[int, int]:
    """Begin reading at the end of the changes. Returns the id and the time of the last of them."""
    connection.execute(f"INSERT INTO {CHANGES} (layout, op, at) SELECT 0, {MARKER}, {NOW}")
    number, at = last_change(connection)
    connection.execute(
        f"INSERT OR REPLACE INTO {READERS} (name, tables, confirmed, most_bytes, seen_at) VALUES (?, ?, ?, ?, ?)",
        (reader, json.dumps(sorted(tables)), number, most_bytes, at),
    )
    return number, at


def tables_of_reader(connection: sqlite3.Connection, reader: str) -> set[str] | None:
    """The tables for which a reader is registered; None if it is not."""
    row = connection.execute(f"SELECT tables FROM {READERS} WHERE name = ?", (reader,)).fetchone()
    return None if row is None else set(json.loads(row[0]))


def update_reader_tables(connection: sqlite3.Connection, reader: str, tables: Sequence[str]) -> None:
    connection.execute(f"UPDATE {READERS} SET tables = ? WHERE name = ?", (json.dumps(sorted(tables)), reader))
    _drop_unread_triggers(connection)


def remove_reader(connection: sqlite3.Connection, reader: str) -> None:
    """Remove a reader, and what nobody else needs. Repeating it does nothing."""
    if read_identity(connection) is not None:
        connection.execute(f"DELETE FROM {READERS} WHERE name = ?", (reader,))
        _drop_unread_triggers(connection)
        if connection.execute(f"SELECT 1 FROM {READERS}").fetchone() is not None:
            return
    for table in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def _drop_unread_triggers(connection: sqlite3.Connection) -> None:
    read = {table for (text,) in connection.execute(f"SELECT tables FROM {READERS}") for table in json.loads(text)}
    for (table,) in connection.execute(f"SELECT DISTINCT name FROM {LAYOUTS}").fetchall():
        if table not in read:
            drop_triggers(connection, table)


def last_change(connection: sqlite3.Connection) -> tuple[int, int]:
    """The id and the time of the last change. There always is one: the last is not removed."""
    row = connection.execute(f"SELECT id, at FROM {CHANGES} ORDER BY id DESC LIMIT 1").fetchone()
    return (0, 0) if row is None else (row[0], row[1])


def has_rows_since(connection: sqlite3.Connection, number: int, layouts: Sequence[int]) -> bool:
    """Whether a row was written since a change, under one of these layouts."""
    query = (
        f"SELECT 1 FROM {CHANGES} WHERE id > ? AND layout IN ({_marks(layouts)}) AND op NOT IN ({DELETED}, {MARKER}) "
        "LIMIT 1"
    )
    return connection.execute(query, (number, *layouts)).fetchone() is not None


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)
