"""The layout of the SQLite file: its SQL tables, their names, and every statement about them.

The rows of a table are in a numbered SQL table, and a SQL view with the user's name selects from it. So a new version
can be built beside the old one and swapped in by name. A table with a key is WITHOUT ROWID and sorted by the key. Such
a SQL table takes no nulls in its key: rows that have one go to a second SQL table, created when the first such row
comes, in which another value stands for null. The SQL view then shows both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from penstock.contracts import TargetTable
from penstock.derive.sqlite.parameters import declared_type, null_of_key
from penstock.names import quoted_name

# The column that numbers the rows of a table without a key. Users' columns never start like this.
ROW_NUMBER = "_penstock_row"
# SQLite's own limit, unless it was compiled with another.
MOST_COLUMNS = 2_000


@dataclass(frozen=True)
class StoredTable:
    """One version of a table in the file. `table` is what was declared, with its schema in normal form."""

    number: int
    table: TargetTable
    hidden: bool = False
    null_keys: bool = False

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns. Empty for a bag, and for a table of at most one row."""
        return self.table.key or ()

    @cached_property
    def columns(self) -> list[str]:
        return list(self.table.schema.names)

    @cached_property
    def declared_types(self) -> dict[str, str]:
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
        """The value that stands for null in a key column of the second SQL table."""
        return null_of_key(self.declared_types[column])


def declared_types(table: TargetTable) -> dict[str, str]:
    key = table.key or ()
    return {field.name: declared_type(field.type, in_key=field.name in key) for field in table.schema}


def _column_list(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(quoted_name, names))


def create_table(stored: StoredTable, name: str) -> str:
    """Create the SQL table for rows, under one of its two names."""
    columns = [
        f"{quoted_name(column)} {type_}{_not_null(stored, column)}" for column, type_ in stored.declared_types.items()
    ]
    if stored.key:
        return f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({_column_list(stored.key)})) WITHOUT ROWID"
    return f"CREATE TABLE {name} ({ROW_NUMBER} INTEGER PRIMARY KEY, {', '.join(columns)})"


def _not_null(stored: StoredTable, column: str) -> str:
    return " NOT NULL" if column in stored.key else ""


def create_sql_view(stored: StoredTable) -> str:
    """Create what readers see. The main SQL table comes last: SQLite takes the declared types of columns from there."""
    select = f"SELECT {_column_list(stored.columns)} FROM {stored.rows_table}"
    if stored.null_keys:
        shown = ", ".join(_selected_column(stored, column) for column in stored.columns)
        select = f"SELECT {shown} FROM {stored.null_keys_table} UNION ALL {select}"
    return f"CREATE VIEW {quoted_name(stored.name)} AS {select}"


def _selected_column(stored: StoredTable, column: str) -> str:
    """A column of the second SQL table. SQLite searches both by key only if they have the same affinity."""
    name = quoted_name(column)
    if column not in stored.key:
        return name
    null = "0" if stored.null_of(column) == 0 else "x''"
    value = f"nullif({name}, {null})"
    affinity = _cast_affinity(stored.declared_types[column])
    return f"CAST({value} AS {affinity}) AS {name}" if affinity else f"{value} AS {name}"


def _cast_affinity(declared: str) -> str | None:
    """The affinity of a declared type, if a cast to it changes no value."""
    for affinity, part in (("TEXT", "TEXT"), ("INTEGER", "INT")):
        if part in declared:
            return affinity
    return "NUMERIC" if declared.startswith("DECIMAL") and "BLOB" not in declared else None


@lru_cache(maxsize=256)
def insert_rows(table: str, columns: tuple[str, ...], rows: int, *, replace: bool) -> str:
    row = f"({', '.join('?' * len(columns))})"
    verb = "REPLACE" if replace else "INSERT"
    return f"{verb} INTO {table} ({_column_list(columns)}) VALUES {', '.join([row] * rows)}"


def delete_keys(table: str, key: tuple[str, ...]) -> str:
    return f"DELETE FROM {table} WHERE {' AND '.join(f'{quoted_name(column)} = ?' for column in key)}"


def delete_equal_rows(stored: StoredTable) -> str:
    """Delete rows that equal the first parameters, at most as many as the last parameter says."""
    # Compared as one value: SQLite takes no more than about 500 conditions in a row.
    matches = f"({_column_list(stored.columns)}) IS ({', '.join('?' * len(stored.columns))})"
    chosen = f"SELECT {ROW_NUMBER} FROM {stored.rows_table} WHERE {matches} LIMIT ?"
    return f"DELETE FROM {stored.rows_table} WHERE {ROW_NUMBER} IN ({chosen})"


def create_bag_index(stored: StoredTable) -> str:
    return f"CREATE INDEX IF NOT EXISTS {stored.bag_index} ON {stored.rows_table} ({_column_list(stored.columns)})"
