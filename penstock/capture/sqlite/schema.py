"""What a table of the user looks like: its columns, its key, its unique indexes; and why it cannot be captured."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from penstock.capture.sqlite.types import arrow_type
from penstock.contracts import COMMIT_TIME, SourceTable
from penstock.errors import DeclarationError
from penstock.suggest import closest

PREFIX = "_penstock_"
"""Of the names of all tables and triggers that capturing adds to a file."""

_MOST_COLUMNS = 1_900  # SQLite allows 2,000, and a change has a few of its own
_VIRTUAL_HIDDEN, _GENERATED = 1, (2, 3)  # the column `hidden` of table_xinfo


@dataclass(frozen=True, slots=True)
class Column:
    """A column as it is declared. `has_default`: rows that exist may have a value when it is added."""

    name: str
    declared: str
    is_not_null: bool = False
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class UniqueTerm:
    """A part of a unique index: a column (quoted) or an expression over the columns, compared by a collation."""

    sql: str
    collation: str
    is_expression: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table. `unique` has the indexes by which REPLACE may delete rows of other keys."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    unique: tuple[tuple[UniqueTerm, ...], ...] = ()

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> TableSchema:
        columns = tuple(Column(**column) for column in found["columns"])
        unique = tuple(tuple(UniqueTerm(**term) for term in terms) for terms in found["unique"])
        return cls(found["name"], columns, tuple(found["key"]), unique)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def table_names(connection: sqlite3.Connection) -> list[str]:
    """All ordinary tables of the user."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
    return sorted(name for (name,) in rows if not name.startswith(("sqlite_", PREFIX)))


def read_schema(connection: sqlite3.Connection, name: str) -> TableSchema:
    """A table as it is now. DeclarationError if it is not there, or cannot be captured."""
    found = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    if found is None or name.startswith(("sqlite_", PREFIX)):
        known = table_names(connection)
        raise DeclarationError(
            f"table '{name}': the database has no such table",
            hint=closest(name, known) or f"its tables are: {', '.join(known) or 'none'}",
        )
    kind, sql = found
    if kind != "table" or sql.upper().startswith("CREATE VIRTUAL"):
        what = "virtual table" if kind == "table" else kind
        raise DeclarationError(f"table '{name}': only tables can have triggers; it is a {what}")
    rows = [row for row in connection.execute(f"PRAGMA table_xinfo({quoted(name)})") if row[6] != _VIRTUAL_HIDDEN]
    key = tuple(row[1] for row in sorted((row for row in rows if row[5]), key=lambda row: int(row[5])))
    columns = tuple(
        Column(row[1], row[2] or "", bool(row[3]), row[4] is not None or row[6] in _GENERATED) for row in rows
    )
    _refuse_unusable(name, columns, key)
    return TableSchema(name, columns, key, _unique_indexes(connection, name, columns, key))


def _refuse_unusable(name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
    if not key:
        raise DeclarationError(
            f"table '{name}': it has no primary key, which says what row has changed (rowids change on VACUUM)",
            hint=f"create it anew with a key and move the rows: CREATE TABLE ... (id INTEGER PRIMARY KEY, ...); "
            f"INSERT INTO ... SELECT * FROM {quoted(name)}",
        )
    if len(columns) > _MOST_COLUMNS:
        raise DeclarationError(f"table '{name}': it has {len(columns)} columns; {_MOST_COLUMNS} can be captured")
    for column in columns:
        if column.name in key and column.declared.upper() in ("", "ANY"):
            raise DeclarationError(
                f"table '{name}': its key column '{column.name}' has no type, so 1 and '1' may be different keys",
                hint=f"create the table anew with a type, such as {quoted(column.name)} TEXT",
            )


# -- unique indexes ---------------------------------------------------------------------------------------------------


def _unique_indexes(
    connection: sqlite3.Connection, table: str, columns: Sequence[Column], key: Sequence[str]
) -> tuple[tuple[UniqueTerm, ...], ...]:
    """The unique indexes by which a REPLACE can delete rows of other keys than its own."""
    indexes = set()
    for _, name, is_unique, *_ in connection.execute(f"PRAGMA index_list({quoted(table)})").fetchall():
        terms = connection.execute(f"PRAGMA index_xinfo({quoted(name)})").fetchall()
        if not is_unique:
            continue
        parts = [(row[2], row[4]) for row in terms if row[5]]
        if [name for name, _ in parts] == list(key) and all(collation == "BINARY" for _, collation in parts):
            continue
        expressions = _expressions_of(connection, name) if any(name is None for name, _ in parts) else []
        indexes.add(
            tuple(
                UniqueTerm(quoted(column), collation)
                if column is not None
                else UniqueTerm(expressions[number], collation, is_expression=True)
                for number, (column, collation) in enumerate(parts)
            )
        )
    indexes |= _rowid_index(connection, table, columns, key)
    return tuple(sorted(indexes, key=lambda terms: [term.sql for term in terms]))


def _rowid_index(
    connection: sqlite3.Connection, table: str, columns: Sequence[Column], key: Sequence[str]
) -> set[tuple[UniqueTerm, ...]]:
    """The rowid, if the table has one beside its key: REPLACE may name it."""
    (is_without_rowid,) = connection.execute(
        "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table,)
    ).fetchone()
    names = {column.name.lower() for column in columns}
    rowid = next((name for name in ("rowid", "_rowid_", "oid") if name not in names), None)
    is_key = len(key) == 1 and any(column.name == key[0] and column.declared.upper() == "INTEGER" for column in columns)
    if is_without_rowid or is_key or rowid is None:
        return set()
    return {(UniqueTerm(rowid, "BINARY"),)}


_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|.""", re.DOTALL)
_ORDER = re.compile(r"(?i)\s+(?:ASC|DESC)\s*$")


def _expressions_of(connection: sqlite3.Connection, index: str) -> list[str]:
    """The terms of an index, as they were written."""
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?", (index,)).fetchone()
    return [_ORDER.sub("", term).strip() for term in _terms_in_parentheses(sql)]


def _terms_in_parentheses(sql: str) -> Iterator[str]:
    depth, term = 0, ""
    for piece in _PIECE.findall(sql):
        if piece == "(":
            depth += 1
            if depth == 1:
                continue
        elif piece == ")":
            depth -= 1
            if depth == 0:
                yield term
                return
        elif piece == "," and depth == 1:
            yield term
            term = ""
            continue
        if depth:
            term += piece


# -- what is captured of it -------------------------------------------------------------------------------------------


def captured_columns(table: TableSchema, wanted: SourceTable, dropped: frozenset[str]) -> list[Column]:
    """The columns to capture, in their order. DeclarationError if one is missing that may not."""
    if COMMIT_TIME in table.names and (wanted.columns is None or COMMIT_TIME in wanted.columns):
        raise DeclarationError(
            f"table '{table.name}': it has a column '{COMMIT_TIME}', which is the name for the time of the commit",
            hint="rename it, or leave it out: name the columns to capture",
        )
    for name in sorted({*(wanted.columns or ()), *wanted.as_text}):
        if name not in table.names and f"{table.name}.{name}" not in dropped:
            raise missing_column_error(table, name)
    names = set(table.names if wanted.columns is None else wanted.columns)
    left_out = [name for name in table.key if name not in names]
    if left_out:
        raise DeclarationError(
            f"table '{table.name}': its key has the column '{left_out[0]}', which is not among those to capture",
            hint="add it: without the key nobody could say which row has changed",
        )
    return [column for column in table.columns if column.name in names]


def missing_column_error(table: TableSchema, name: str) -> DeclarationError:
    return DeclarationError(
        f"table '{table.name}': there is no column '{name}'",
        hint=closest(name, table.names) or f"its columns are: {', '.join(table.names)}",
    )


def arrow_schema(table: TableSchema, columns: Sequence[Column], wanted: SourceTable) -> pa.Schema:
    fields = [
        pa.field(
            column.name,
            arrow_type(column.declared, as_text=column.name in wanted.as_text),
            nullable=column.name not in table.key,
        )
        for column in columns
    ]
    return pa.schema([*fields, pa.field(COMMIT_TIME, pa.timestamp("us", "UTC"))])
