"""Tables as the catalogue of the server describes them now, and what of them cannot be captured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.capture.mysql.charsets import Charsets
from penstock.capture.mysql.connection import Session, quoted
from penstock.capture.mysql.types import declared_type
from penstock.capture.mysql.values import Column, is_supported_charset
from penstock.contracts import COMMIT_TIME, SourceTable
from penstock.errors import DeclarationError

COMMIT_FIELD = pa.field(COMMIT_TIME, pa.timestamp("us", "UTC"))
_CASCADE = re.compile(r"CONSTRAINT (`(?:[^`]|``)+`) (FOREIGN KEY .*?)((?: ON (?:DELETE|UPDATE) [A-Z ]+)+)(?=,?\n)")
_CHANGING = re.compile(r"CASCADE|SET NULL|SET DEFAULT")


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table to capture: where it is, and what of it."""

    database: str
    table: str
    spec: SourceTable

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def quoted_name(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.table)}"

    def takes(self, column: str) -> bool:
        return self.spec.columns is None or column in self.spec.columns


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The captured columns of a table, its key, and the server's guess of how many rows it has."""

    table: CapturedTable
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    estimated_rows: int | None

    @property
    def schema(self) -> pa.Schema:
        return rows_schema(self.columns, self.key)


def rows_schema(columns: Sequence[Column], key: Sequence[str]) -> pa.Schema:
    """The schema of a table's rows: its columns, of which only the key is never null, and the time of the commit."""
    fields = [pa.field(column.name, column.arrow, nullable=column.name not in key) for column in columns]
    return pa.schema([*fields, COMMIT_FIELD])


def captured_table(spec: SourceTable, database: str) -> CapturedTable:
    """Where a table is: `orders` in the database of the URL, `shop.orders` in another one."""
    schema, dot, table = spec.name.partition(".")
    return CapturedTable(schema, table, spec) if dot else CapturedTable(database, spec.name, spec)


def describe_table(
    session: Session, table: CapturedTable, charsets: Charsets, dropped: frozenset[str]
) -> TableDefinition:
    """The table as it is now. DeclarationError if it cannot be captured; the hint has the statement to run."""
    where = f"database {session.address.shown}: table '{table.name}'"
    estimated_rows = _check_kind(session, table, where)
    key = _key(session, table)
    if not key:
        raise DeclarationError(
            f"{where}: it has no primary key, and no unique key whose columns are all NOT NULL",
            hint=f"ALTER TABLE {table.quoted_name} ADD COLUMN id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY",
        )
    if not table.spec.inserts_only:
        _check_foreign_keys(session, table, where)
    columns = _columns(session, table, charsets, where)
    _check_selection(table, {column.name for column in columns}, key, dropped, where)
    return TableDefinition(table, tuple(columns), key, estimated_rows)


def _check_kind(session: Session, table: CapturedTable, where: str) -> int | None:
    rows = session.rows(
        "SELECT TABLE_TYPE, ENGINE, TABLE_ROWS FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        [table.database, table.table],
    )
    if not rows:
        raise DeclarationError(
            f"{where}: it does not exist in '{table.database}', or the user has no right to read it",
            hint=f"correct the name, or GRANT SELECT ON {table.quoted_name} TO {session.quoted_user()}",
        )
    kind, engine, estimated_rows = rows[0]
    if kind != "BASE TABLE":
        raise DeclarationError(f"{where}: only plain tables can be captured; found {str(kind).lower()}")
    if str(engine).lower() != "innodb":
        raise DeclarationError(
            f"{where}: only tables of the engine InnoDB have snapshots; found {engine}",
            hint=f"ALTER TABLE {table.quoted_name} ENGINE = InnoDB",
        )
    session.rows(f"SELECT 1 FROM {table.quoted_name} LIMIT 0")  # it may be seen with a right on one column only
    return None if estimated_rows is None else int(str(estimated_rows))


def _key(session: Session, table: CapturedTable) -> tuple[str, ...]:
    """The primary key, or else the first unique key that is never null; empty if there is none."""
    rows = session.rows(
        "SELECT INDEX_NAME, COLUMN_NAME, NULLABLE, SUB_PART FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 "
        "ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX",
        [table.database, table.table],
    )
    keys: dict[str, list[str]] = {}
    unusable = set()
    for index, column, nullable, part in rows:
        keys.setdefault(str(index), []).append(str(column))
        if nullable == "YES" or part is not None:
            unusable.add(str(index))
    usable = [tuple(columns) for index, columns in keys.items() if index not in unusable]
    return usable[0] if usable else ()


def _check_foreign_keys(session: Session, table: CapturedTable, where: str) -> None:
    """Refuse keys by which the server changes rows of this table without writing that into its binary log."""
    text = str(session.rows(f"SHOW CREATE TABLE {table.quoted_name}")[0][1])
    for name, definition, actions in _CASCADE.findall(text):
        if _CHANGING.search(actions):
            raise DeclarationError(
                f"{where}: its foreign key {name} changes rows that the binary log then does not have; found{actions}",
                hint=f"ALTER TABLE {table.quoted_name} DROP FOREIGN KEY {name}; "
                f"ALTER TABLE {table.quoted_name} ADD CONSTRAINT {name} {definition}; "
                "and delete or change the rows in the application, or in a trigger",
            )


def _columns(session: Session, table: CapturedTable, charsets: Charsets, where: str) -> list[Column]:
    rows = session.rows(
        "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        [table.database, table.table],
    )
    columns = []
    for name, declaration, charset in rows:
        if not table.takes(str(name)):
            continue
        type_ = declared_type(str(declaration), None if charset is None else str(charset))
        place = f"{where}, column '{name}'"
        if type_.kind == "unknown":
            raise DeclarationError(
                f"{place}: its type is not supported; found {type_.name}",
                hint="name the columns to capture without it, or change its type",
            )
        if type_.kind in ("text", "enum", "set") and not is_supported_charset(type_.charset, charsets.characters):
            raise DeclarationError(
                f"{place}: its character set is not supported; found {type_.charset}",
                hint=f"ALTER TABLE {table.quoted_name} CONVERT TO CHARACTER SET utf8mb4, or capture without the column",
            )
        characters = charsets.characters_of(type_.charset)
        columns.append(Column(str(name), type_, place, str(name) in table.spec.as_text, characters))
    return columns


def _check_selection(
    table: CapturedTable, found: set[str], key: tuple[str, ...], dropped: frozenset[str], where: str
) -> None:
    asked = set(table.spec.columns or ()) | table.spec.as_text
    missing = [name for name in sorted(asked - found) if f"{table.name}.{name}" not in dropped]
    if missing:
        raise DeclarationError(
            f"{where}: it has no column {', '.join(missing)}; it has {', '.join(sorted(found))}",
            hint=f"correct the name, or accept that it has gone: "
            f"penstock capture accept NAME --dropped {table.name}.{missing[0]}",
        )
    if not set(key) <= found:
        raise DeclarationError(
            f"{where}: the columns of its key, {', '.join(key)}, must be captured", hint="add them to the columns"
        )
    if COMMIT_TIME in found:
        raise DeclarationError(
            f"{where}: it has a column '{COMMIT_TIME}', which is the name of the time at which a row was committed",
            hint="name the columns to capture without it, or rename it",
        )
