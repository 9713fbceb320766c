"""The SQL of what is added to a file: tables for changes, and triggers that fill them. Nothing here does I/O.

A trigger does not store what its statement wrote, but the row as it is then: triggers of the user may have changed it
before, since SQLite runs triggers in any order. REPLACE deletes rows without a trigger: a BEFORE trigger notes the rows
that are in its way, and the AFTER trigger stores those as deleted that no longer exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.capture.sqlite.schema import PREFIX, TableSchema, UniqueTerm, quoted

CHANGES = f"{PREFIX}changes"
REPLACED = f"{PREFIX}replaced"
LAYOUTS = f"{PREFIX}layouts"
READERS = f"{PREFIX}readers"
IDENTITY = f"{PREFIX}identity"

DELETED, INSERTED, UPDATED, MARKER = 0, 1, 2, 9
"""What a row of the changes is. A marker is no change: it only takes up an id."""

NOW = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
"""Milliseconds since 1970."""

# AUTOINCREMENT: ids only grow. The values of a row are in v0, v1 ..., which are added as tables need them: without a
# declared type, SQLite stores every value exactly as it is in the table of the user.
TABLES = {
    CHANGES: "(id INTEGER PRIMARY KEY AUTOINCREMENT, layout INTEGER NOT NULL, op INTEGER NOT NULL, "
    "at INTEGER NOT NULL)",
    REPLACED: "(layout INTEGER NOT NULL)",
    LAYOUTS: "(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, description TEXT NOT NULL, "
    "is_continued INTEGER NOT NULL)",
    READERS: "(name TEXT PRIMARY KEY, tables TEXT NOT NULL, confirmed INTEGER NOT NULL, most_bytes INTEGER, "
    "seen_at INTEGER NOT NULL)",
    IDENTITY: "(id TEXT NOT NULL, format INTEGER NOT NULL)",
}
FORMAT = 1

_EVENTS = ("before_insert", "before_update", "insert", "update", "delete")


def trigger_names(table: str) -> list[str]:
    """The names of all triggers that a table may have."""
    return [f"{PREFIX}{table}_{event}" for event in _EVENTS]


def trigger_statements(table: TableSchema, layout: int) -> dict[str, str]:
    """The triggers of a table by name."""
    return {
        f"{PREFIX}{table.name}_{event}": f"CREATE TRIGGER {quoted(f'{PREFIX}{table.name}_{event}')} "
        f"{'BEFORE' if event.startswith('before') else 'AFTER'} {event.rpartition('_')[2].upper()} "
        f"ON {quoted(table.name)} BEGIN {' '.join(statements)} END"
        for event, statements in _bodies(table, layout).items()
        if statements
    }


def _bodies(table: TableSchema, layout: int) -> dict[str, list[str]]:
    is_same_key = " AND ".join(f"OLD.{quoted(name)} IS NEW.{quoted(name)} COLLATE BINARY" for name in table.key)
    is_old_gone = f"NOT EXISTS (SELECT 1 FROM {quoted(table.name)} AS t WHERE {_key_matches(table, 'OLD')})"
    old_key = [f"OLD.{quoted(name)}" for name in table.key]
    is_other_row = f"NOT ({_key_matches(table, 'OLD')})"
    return {
        "before_insert": [_note_conflicts(table, layout, terms, "TRUE") for terms in table.unique],
        "before_update": [_note_conflicts(table, layout, terms, is_other_row) for terms in table.unique],
        "insert": [*_store_replaced(table, layout), _store_row(table, layout, INSERTED)],
        "update": [
            *_store_replaced(table, layout),
            _store_delete(table, layout, old_key, f"WHERE NOT ({is_same_key}) AND {is_old_gone}"),
            _store_row(table, layout, UPDATED),
        ],
        "delete": [_store_delete(table, layout, old_key, f"WHERE {is_old_gone}")],
    }


def _store_row(table: TableSchema, layout: int, operation: int) -> str:
    targets = ", ".join(f"v{number}" for number in range(len(table.columns)))
    values = ", ".join(f"t.{quoted(name)}" for name in table.names)
    return (
        f"INSERT INTO {CHANGES} (layout, op, at, {targets}) SELECT {layout}, {operation}, {NOW}, {values} "
        f"FROM {quoted(table.name)} AS t WHERE {_key_matches(table, 'NEW')};"
    )


def _store_delete(table: TableSchema, layout: int, key: Sequence[str], condition: str) -> str:
    targets = ", ".join(f"v{table.names.index(name)}" for name in table.key)
    return (
        f"INSERT INTO {CHANGES} (layout, op, at, {targets}) SELECT {layout}, {DELETED}, {NOW}, {', '.join(key)} "
        f"{condition};"
    )


def _key_matches(table: TableSchema, row: str) -> str:
    """Whether t has the key of OLD or NEW. The first comparison finds it by the index, whose collation may say more."""
    return _key_equals(table, [f"{row}.{quoted(name)}" for name in table.key])


def _key_equals(table: TableSchema, values: Sequence[str]) -> str:
    comparisons = []
    for name, value in zip(table.key, values, strict=True):
        comparisons.append(f"t.{quoted(name)} IS {value}")
        if "INT" not in table.column(name).declared.upper():
            comparisons.append(f"t.{quoted(name)} IS {value} COLLATE BINARY")
    return " AND ".join(comparisons)


def _note_conflicts(table: TableSchema, layout: int, terms: Sequence[UniqueTerm], condition: str) -> str:
    targets = ", ".join(f"k{number}" for number in range(len(table.key)))
    keys = ", ".join(f"t.{quoted(name)}" for name in table.key)
    matches = " AND ".join(_conflicts(table, term) for term in terms)
    return (
        f"INSERT INTO {REPLACED} (layout, {targets}) SELECT {layout}, {keys} FROM {quoted(table.name)} AS t "
        f"WHERE {matches} AND {condition};"
    )


def _conflicts(table: TableSchema, term: UniqueTerm) -> str:
    if not term.is_expression:
        return f"t.{term.sql} = NEW.{term.sql} COLLATE {quoted(term.collation)}"
    # Inside of the parentheses, the names of columns mean the new row.
    new_row = ", ".join(f"NEW.{quoted(name)} AS {quoted(name)}" for name in table.names)
    return f"({term.sql}) = (SELECT {term.sql} FROM (SELECT {new_row})) COLLATE {quoted(term.collation)}"


def _store_replaced(table: TableSchema, layout: int) -> list[str]:
    if not table.unique:
        return []
    keys = [f"r.k{number}" for number in range(len(table.key))]
    condition = (
        f"FROM {REPLACED} AS r WHERE r.layout = {layout} "
        f"AND NOT EXISTS (SELECT 1 FROM {quoted(table.name)} AS t WHERE {_key_equals(table, keys)})"
    )
    return [
        _store_delete(table, layout, keys, condition),
        f"DELETE FROM {REPLACED} WHERE layout = {layout};",
    ]
