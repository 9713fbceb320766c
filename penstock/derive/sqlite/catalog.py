"""Which tables are in the file, and in which versions: the rows of `penstock_views`, and the SQL tables behind them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from penstock.contracts import TargetTable
from penstock.derive.sqlite import layout
from penstock.derive.sqlite.layout import StoredTable
from penstock.errors import DeclarationError
from penstock.names import quoted_name
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import to_ddl, type_ddl
from penstock.suggest import closest

RESERVED_PREFIXES = ("penstock_", "sqlite_")


class Catalog:
    """The tables of a file as a transaction finds them. Its changes are part of that transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        query = "SELECT number, name, building, schema, key, version, null_keys FROM penstock_views ORDER BY number"
        tables = [_stored_table(*row) for row in connection.execute(query)]
        self._visible = {table.name.lower(): table for table in tables if not table.hidden}
        self._hidden = {table.name.lower(): table for table in tables if table.hidden}

    def table_to_write(self, name: str) -> StoredTable:
        """The version that takes changes: the hidden one that is being built, if there is one."""
        table = self._hidden.get(name.lower()) or self._visible.get(name.lower())
        if table is None:
            names = [visible.name for visible in self._visible.values()]
            hint = closest(name, names) or "declare it before the first change"
            raise DeclarationError(f"view '{name}': it is not declared; there is {_name_list(names)}", hint=hint)
        return table

    def declare(self, table: TargetTable, *, hidden: bool) -> None:
        """Create what is missing. With `hidden`, a table that differs from what readers see is created hidden."""
        visible, unfinished = self._visible.get(table.name.lower()), self._hidden.get(table.name.lower())
        if visible is not None and _is_same(visible.table, table):
            if unfinished is not None:
                self._remove(unfinished)
        elif visible is None and not hidden:
            if unfinished is not None:
                self._remove(unfinished)
            self._create(table, hidden=False)
        elif not hidden:
            assert visible is not None
            raise DeclarationError(
                f"view '{table.name}': it already exists with {_difference(visible.table, table)}",
                hint="build it next to the old one and swap them, or drop it first",
            )
        elif unfinished is None or not _is_same(unfinished.table, table):
            if unfinished is not None:
                self._remove(unfinished)
            self._create(table, hidden=True)

    def show(self, name: str) -> None:
        """Replace the version that readers see by the one that was built hidden."""
        built = self._hidden.pop(name.lower(), None)
        if built is None:
            names = [hidden.name for hidden in self._hidden.values()]
            raise DeclarationError(
                f"view '{name}': no other version of it is being built; there is {_name_list(names)}"
            )
        if name.lower() in self._visible:
            self._remove(self._visible[name.lower()])
        shown = replace(built, hidden=False)
        self._connection.execute("UPDATE penstock_views SET building = 0 WHERE number = ?", (shown.number,))
        self._connection.execute(layout.create_sql_view(shown))
        self._visible[name.lower()] = shown

    def drop(self, name: str) -> None:
        """Remove all versions of a table. Does nothing if there is none."""
        for tables in (self._hidden, self._visible):
            table = tables.get(name.lower())
            if table is not None:
                self._remove(table)

    def create_null_keys_table(self, table: StoredTable) -> StoredTable:
        """Create the second SQL table, for rows with a null in their key."""
        changed = replace(table, null_keys=True)
        self._connection.execute(layout.create_table(changed, changed.null_keys_table))
        self._connection.execute("UPDATE penstock_views SET null_keys = 1 WHERE number = ?", (table.number,))
        if not table.hidden:
            self._connection.execute(f"DROP VIEW {quoted_name(table.name)}")
            self._connection.execute(layout.create_sql_view(changed))
        (self._hidden if table.hidden else self._visible)[table.name.lower()] = changed
        return changed

    def _create(self, table: TargetTable, *, hidden: bool) -> None:
        key = None if table.key is None else json.dumps(table.key)
        declared = layout.declared_types(table)
        columns = [(field.name, declared[field.name], type_ddl(field.type)) for field in table.schema]
        number = self._connection.execute(
            "INSERT INTO penstock_views (name, building, schema, key, version, columns, null_keys) "
            "VALUES (?, ?, ?, ?, ?, ?, 0)",
            (table.name, hidden, to_ddl(table.schema), key, table.version, json.dumps(columns)),
        ).lastrowid
        assert number is not None
        created = StoredTable(number, table, hidden)
        self._connection.execute(layout.create_table(created, created.rows_table))
        if not hidden:
            self._connection.execute(layout.create_sql_view(created))
        (self._hidden if hidden else self._visible)[table.name.lower()] = created

    def _remove(self, table: StoredTable) -> None:
        if not table.hidden:
            self._connection.execute(f"DROP VIEW {quoted_name(table.name)}")
        self._connection.execute(f"DROP TABLE {table.rows_table}")
        if table.null_keys:
            self._connection.execute(f"DROP TABLE {table.null_keys_table}")
        self._connection.execute("DELETE FROM penstock_views WHERE number = ?", (table.number,))
        (self._hidden if table.hidden else self._visible).pop(table.name.lower())


def normalised_table(table: TargetTable) -> TargetTable:
    """The table with its schema in normal form. DeclarationError if SQLite cannot hold it."""
    where = f"view '{table.name}'"
    if not table.name or table.name.lower().startswith(RESERVED_PREFIXES) or "\0" in table.name:
        raise DeclarationError(
            f"{where}: this is not a name for a view",
            hint="give it another name; those that begin with 'penstock_' or 'sqlite_' are taken",
        )
    try:
        schema = parse_schema(pa.schema([field.remove_metadata() for field in table.schema]))
    except DeclarationError as error:
        raise DeclarationError(f"{where}: {error.message}", hint=error.hint) from error
    most = layout.MOST_COLUMNS if table.key else layout.MOST_COLUMNS - 1  # without a key, one numbers the rows
    if len(schema.names) > most:
        raise DeclarationError(
            f"{where}: a table of SQLite has at most {most:,} columns here; found {len(schema.names):,}",
            hint="select fewer columns, or put some into a struct; a view has no such limit: app.view(...)",
        )
    for column in table.key or ():
        if column not in schema.names:
            raise DeclarationError(
                f"{where}: its key has the column '{column}', which it has not; it has {_name_list(schema.names)}",
                hint=closest(column, schema.names),
            )
    return replace(table, schema=schema)


@lru_cache(maxsize=256)  # every epoch asks for the same tables
def _stored_table(
    number: int, name: str, hidden: int, schema: str, key: str | None, version: str, null_keys: int
) -> StoredTable:
    columns = None if key is None else tuple(json.loads(key))
    table = TargetTable(name, parse_schema(schema), columns, version)
    return StoredTable(number, table, bool(hidden), bool(null_keys))


def _is_same(stored: TargetTable, declared: TargetTable) -> bool:
    return stored.schema.equals(declared.schema) and (stored.key, stored.version) == (declared.key, declared.version)


def _difference(stored: TargetTable, declared: TargetTable) -> str:
    if not stored.schema.equals(declared.schema):
        return f"other columns: {to_ddl(stored.schema)}; declared is {to_ddl(declared.schema)}"
    if stored.key != declared.key:
        return f"the key {_key_text(stored)}; declared is {_key_text(declared)}"
    return f"version '{stored.version}'; declared is '{declared.version}'"


def _key_text(table: TargetTable) -> str:
    return "none" if table.key is None else f"({', '.join(table.key)})"


def _name_list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
