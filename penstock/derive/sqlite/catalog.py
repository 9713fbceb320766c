"""Which views are in the file, and in which versions: the rows of `penstock_views`, and the tables behind them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from penstock.contracts import TargetTable
from penstock.derive.sqlite import layout
from penstock.derive.sqlite.layout import StoredView
from penstock.errors import DeclarationError
from penstock.log.ddl import closest, to_ddl, type_ddl
from penstock.log.schema import parse_schema

RESERVED_PREFIXES = ("penstock_", "sqlite_")


class Catalog:
    """The views of a file, as a transaction finds them. What it changes is changed by that transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        query = "SELECT number, name, building, schema, key, version, null_keys FROM penstock_views ORDER BY number"
        views = [_stored_view(*row) for row in connection.execute(query)]
        self._live = {view.name.lower(): view for view in views if not view.building}
        self._building = {view.name.lower(): view for view in views if view.building}

    def live(self) -> list[StoredView]:
        return list(self._live.values())

    def building(self) -> list[StoredView]:
        return list(self._building.values())

    def written(self, name: str) -> StoredView:
        """The version that takes changes: the one being built, if there is one."""
        view = self._building.get(name.lower()) or self._live.get(name.lower())
        if view is None:
            names = [each.name for each in self.live()]
            hint = closest(name, names) or "declare it before the first change"
            raise DeclarationError(f"view '{name}': it is not declared; there is {_named(names)}", hint=hint)
        return view

    def declare(self, table: TargetTable, *, building: bool) -> None:
        """Make what is missing. `building`: what readers do not see as it is, is made where they do not see it."""
        live, unfinished = self._live.get(table.name.lower()), self._building.get(table.name.lower())
        if live is not None and _same(live.table, table):
            if unfinished is not None:
                self._remove(unfinished)
        elif live is None and not building:
            if unfinished is not None:
                self._remove(unfinished)
            self._add(table, building=False)
        elif not building:
            assert live is not None
            raise DeclarationError(
                f"view '{table.name}': it is there with {_difference(live.table, table)}",
                hint="build it beside the old one and swap them, or drop it first",
            )
        elif unfinished is None or not _same(unfinished.table, table):
            if unfinished is not None:
                self._remove(unfinished)
            self._add(table, building=True)

    def swap(self, name: str) -> None:
        """Show the version that was built in the place of the one that readers saw."""
        built = self._building.pop(name.lower(), None)
        if built is None:
            names = [each.name for each in self.building()]
            raise DeclarationError(f"view '{name}': no other version of it is being built; there is {_named(names)}")
        if name.lower() in self._live:
            self._remove(self._live[name.lower()])
        shown = replace(built, building=False)
        self._connection.execute("UPDATE penstock_views SET building = 0 WHERE number = ?", (shown.number,))
        self._connection.execute(layout.create_sql_view(shown))
        self._live[name.lower()] = shown

    def drop(self, name: str) -> None:
        """Remove all versions of a view; nothing happens if there is none."""
        for views in (self._building, self._live):
            view = views.get(name.lower())
            if view is not None:
                self._remove(view)

    def add_null_keys(self, view: StoredView) -> StoredView:
        """Make the second table, for rows with a null in their key."""
        changed = replace(view, null_keys=True)
        self._connection.execute(layout.create_table(changed, changed.null_keys_table))
        self._connection.execute("UPDATE penstock_views SET null_keys = 1 WHERE number = ?", (view.number,))
        if not view.building:
            self._connection.execute(f"DROP VIEW {layout.quoted(view.name)}")
            self._connection.execute(layout.create_sql_view(changed))
        (self._building if view.building else self._live)[view.name.lower()] = changed
        return changed

    def _add(self, table: TargetTable, *, building: bool) -> None:
        key = None if table.key is None else json.dumps(table.key)
        declared = layout.declared_types(table)
        columns = [(field.name, declared[field.name], type_ddl(field.type)) for field in table.schema]
        number = self._connection.execute(
            "INSERT INTO penstock_views (name, building, schema, key, version, columns, null_keys) "
            "VALUES (?, ?, ?, ?, ?, ?, 0)",
            (table.name, building, to_ddl(table.schema), key, table.version, json.dumps(columns)),
        ).lastrowid
        assert number is not None
        view = StoredView(number, table, building)
        self._connection.execute(layout.create_table(view, view.rows_table))
        if not building:
            self._connection.execute(layout.create_sql_view(view))
        (self._building if building else self._live)[table.name.lower()] = view

    def _remove(self, view: StoredView) -> None:
        if not view.building:
            self._connection.execute(f"DROP VIEW {layout.quoted(view.name)}")
        self._connection.execute(f"DROP TABLE {view.rows_table}")
        if view.null_keys:
            self._connection.execute(f"DROP TABLE {view.null_keys_table}")
        self._connection.execute("DELETE FROM penstock_views WHERE number = ?", (view.number,))
        (self._building if view.building else self._live).pop(view.name.lower())


def checked(table: TargetTable) -> TargetTable:
    """The same view with its schema in normal form; refused if it cannot be kept."""
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
    for column in table.key or ():
        if column not in schema.names:
            raise DeclarationError(
                f"{where}: its key has the column '{column}', which it has not; it has {_named(schema.names)}",
                hint=closest(column, schema.names),
            )
    return replace(table, schema=schema)


@lru_cache(maxsize=256)  # every epoch asks for the same views
def _stored_view(
    number: int, name: str, building: int, schema: str, key: str | None, version: str, null_keys: int
) -> StoredView:
    columns = None if key is None else tuple(json.loads(key))
    table = TargetTable(name, parse_schema(schema), columns, version)
    return StoredView(number, table, bool(building), bool(null_keys))


def _same(one: TargetTable, other: TargetTable) -> bool:
    return one.schema.equals(other.schema) and (one.key, one.version) == (other.key, other.version)


def _difference(there: TargetTable, declared: TargetTable) -> str:
    if not there.schema.equals(declared.schema):
        return f"other columns: {to_ddl(there.schema)}; declared is {to_ddl(declared.schema)}"
    if there.key != declared.key:
        return f"the key {_key(there)}; declared is {_key(declared)}"
    return f"version '{there.version}'; declared is '{declared.version}'"


def _key(table: TargetTable) -> str:
    return "none" if table.key is None else f"({', '.join(table.key)})"


def _named(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
