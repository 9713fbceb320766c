"""How views lie in the SQLite file: the tables, their names, and every statement that is made of them.

The rows of a view are in a hidden table with a number, and what carries the user's name is a SQL view of it. So a new
version can be built beside the old one and swapped in by its name. A view with a key is a table WITHOUT ROWID that is
sorted by the key. Such a table takes no nulls in its key: rows that have one are in a second table, made when the first
of them comes, in which another value stands for null; the SQL view then shows both tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from penstock.contracts import TargetTable
from penstock.derive.sqlite.values import declared_type, null_of_key

# The hidden column that numbers the rows of a view without a key; columns of users do not start like this.
ROW_NUMBER = "_penstock_row"


@dataclass(frozen=True)
class StoredView:
    """One version of a view in the file. `table` has a schema of normal types."""

    number: int
    table: TargetTable
    building: bool = False
    null_keys: bool = False

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; none for a bag, and none for a view of one row."""
        return self.table.key or ()

    @cached_property
    def columns(self) -> list[str]:
        return list(self.table.schema.names)

    @cached_property
    def declared(self) -> dict[str, str]:
        """The declared type of each column."""
        return declared_types(self.table)

    @property
    def rows_table(self) -> str:
        return f"penstock_rows_{self.number}"

    @property
    def null_keys_table(self) -> str:
        return f"penstock_null_keys_{self.number}"

    @property
    def bag_index(self) -> str:
        return f"penstock_bag_{self.number}"

    def null_of(self, column: str) -> object:
        """What stands for null in a key column of the second table."""
        return null_of_key(self.declared[column])


def declared_types(table: TargetTable) -> dict[str, str]:
    key = table.key or ()
    return {field.name: declared_type(field.type, in_key=field.name in key) for field in table.schema}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(quoted, names))


def create_table(view: StoredView, name: str) -> str:
    """The table for a view's rows, under one of its two names."""
    columns = [f"{quoted(column)} {declared}{_not_null(view, column)}" for column, declared in view.declared.items()]
    if view.key:
        return f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({_listed(view.key)})) WITHOUT ROWID"
    return f"CREATE TABLE {name} ({ROW_NUMBER} INTEGER PRIMARY KEY, {', '.join(columns)})"


def _not_null(view: StoredView, column: str) -> str:
    return " NOT NULL" if column in view.key else ""


def create_sql_view(view: StoredView) -> str:
    """What readers see. The table comes last: SQLite takes the declared types of the columns from there."""
    select = f"SELECT {_listed(view.columns)} FROM {view.rows_table}"
    if view.null_keys:
        shown = ", ".join(_shown(view, column) for column in view.columns)
        select = f"SELECT {shown} FROM {view.null_keys_table} UNION ALL {select}"
    return f"CREATE VIEW {quoted(view.name)} AS {select}"


def _shown(view: StoredView, column: str) -> str:
    """A column of the second table. Only with the affinity of the first does SQLite search both by their keys."""
    name = quoted(column)
    if column not in view.key:
        return name
    null = "0" if view.null_of(column) == 0 else "x''"
    value = f"nullif({name}, {null})"
    affinity = _cast_to(view.declared[column])
    return f"CAST({value} AS {affinity}) AS {name}" if affinity else f"{value} AS {name}"


def _cast_to(declared: str) -> str | None:
    """The affinity of a declared type, where a cast to it changes no value."""
    for affinity, part in (("TEXT", "TEXT"), ("INTEGER", "INT")):
        if part in declared:
            return affinity
    return "NUMERIC" if declared.startswith("DECIMAL") and "BLOB" not in declared else None


@lru_cache(maxsize=256)
def insert_rows(table: str, columns: tuple[str, ...], rows: int, *, replace: bool) -> str:
    row = f"({', '.join('?' * len(columns))})"
    verb = "REPLACE" if replace else "INSERT"
    return f"{verb} INTO {table} ({_listed(columns)}) VALUES {', '.join([row] * rows)}"


def delete_keys(table: str, key: tuple[str, ...]) -> str:
    return f"DELETE FROM {table} WHERE {' AND '.join(f'{quoted(column)} = ?' for column in key)}"


def delete_equal_rows(view: StoredView) -> str:
    """At most as many rows as the last parameter says, of those that are equal to the others."""
    same = " AND ".join(f"{quoted(column)} IS ?" for column in view.columns)
    found = f"SELECT {ROW_NUMBER} FROM {view.rows_table} WHERE {same} LIMIT ?"
    return f"DELETE FROM {view.rows_table} WHERE {ROW_NUMBER} IN ({found})"


def create_bag_index(view: StoredView) -> str:
    return f"CREATE INDEX IF NOT EXISTS {view.bag_index} ON {view.rows_table} ({_listed(view.columns)})"
