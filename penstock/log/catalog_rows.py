"""The tables of the catalogue. Every row carries a checksum, and every table the sum of those of its rows.

A row is returned only if its checksum is right. A row that is missing changes its table's total, which triggers keep up
to date and `damage_in` compares. There are no indexes: nothing is stored twice, so nothing can disagree.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from crc32c import crc32c

from penstock.errors import DamagedError

# The columns of each table but its checksum, and how it is declared.
COLUMNS: dict[str, tuple[str, ...]] = {
    "producers": ("id", "name", "epoch", "sequence"),
    "transactions": ("id",),
    "subscriptions": ("group_name", "topic"),
    "offsets": ("group_name", "topic", "partition", "next_offset"),
    "members": ("group_name", "member", "topics", "boot", "expires"),
    "assignments": ("group_name", "topic", "partition", "member"),
    "promises": ("number", "topic", "topic_id", "producer", "time", "ends"),
    "positions": ("producer", "position"),
}
# Tables that a format of the catalogue brought; those of the first that has checksums are not listed.
_SINCE = {"positions": 3}
_DECLARED = {
    "producers": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, "
    "crc INTEGER NOT NULL)",
    "transactions": "id INTEGER PRIMARY KEY, crc INTEGER NOT NULL)",
    "subscriptions": "group_name TEXT NOT NULL, topic TEXT NOT NULL, crc INTEGER NOT NULL, "
    "PRIMARY KEY (group_name, topic)) WITHOUT ROWID",
    "offsets": "group_name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "
    "next_offset INTEGER NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (group_name, topic, partition)) WITHOUT ROWID",
    "members": "group_name TEXT NOT NULL, member TEXT NOT NULL, topics TEXT NOT NULL, boot BLOB NOT NULL, "
    "expires REAL NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (group_name, member)) WITHOUT ROWID",
    "assignments": "group_name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL, "
    "crc INTEGER NOT NULL, PRIMARY KEY (group_name, topic, partition)) WITHOUT ROWID",
    "promises": "number INTEGER PRIMARY KEY, topic TEXT NOT NULL, topic_id TEXT NOT NULL, producer INTEGER NOT NULL, "
    "time INTEGER NOT NULL, ends TEXT NOT NULL, crc INTEGER NOT NULL)",
    "positions": "producer INTEGER PRIMARY KEY, position TEXT NOT NULL, crc INTEGER NOT NULL)",
}
_CHANGES = {"insert": ("+ 1", "+ NEW.crc"), "delete": ("- 1", "- OLD.crc"), "update": ("", "+ NEW.crc - OLD.crc")}

Row = tuple[object, ...]


def tables_of(version: int) -> list[str]:
    """The tables of a catalogue of this format."""
    return [table for table in COLUMNS if _SINCE.get(table, 0) <= version]


def statements(tables: Sequence[str]) -> list[str]:
    """What makes an empty catalogue with these tables, in the words in which SQLite keeps it."""
    made = [
        "CREATE TABLE meta (log TEXT NOT NULL, changes INTEGER NOT NULL, crc INTEGER NOT NULL)",
        "CREATE TABLE totals (name TEXT PRIMARY KEY, count INTEGER NOT NULL, digest INTEGER NOT NULL) WITHOUT ROWID",
    ]
    return made + [statement for table in tables for statement in _table_statements(table)]


def _table_statements(table: str) -> list[str]:
    return [f"CREATE TABLE {table} ({_DECLARED[table]}"] + [
        f"CREATE TRIGGER {table}_{event} AFTER {event.upper()} ON {table} BEGIN "
        f"UPDATE totals SET count = count {count}, digest = digest {digest} WHERE name = '{table}'; END"
        for event, (count, digest) in _CHANGES.items()
    ]


def create_tables(connection: sqlite3.Connection, log_id: str, changes: int) -> None:
    """Make an empty catalogue, inside a change."""
    for statement in statements(list(COLUMNS)):
        connection.execute(statement)
    connection.executemany("INSERT INTO totals VALUES (?, 0, 0)", [(table,) for table in COLUMNS])
    connection.execute("INSERT INTO meta VALUES (?, ?, ?)", (log_id, changes, checksum("meta", (log_id, changes))))


def add_tables(connection: sqlite3.Connection, version: int) -> None:
    """Give a catalogue of this format the tables that came later, inside a change."""
    for table in COLUMNS:
        if table not in tables_of(version):
            for statement in _table_statements(table):
                connection.execute(statement)
            connection.execute("INSERT INTO totals VALUES (?, 0, 0)", (table,))


def checksum(table: str, values: Sequence[object]) -> int:
    return int(crc32c(repr((table, *values)).encode()))


def put(connection: sqlite3.Connection, table: str, *values: object) -> None:
    """Store a row, in the place of one with the same key."""
    _insert(connection, "REPLACE", table, values)


def put_if_new(connection: sqlite3.Connection, table: str, *values: object) -> None:
    _insert(connection, "IGNORE", table, values)


def _insert(connection: sqlite3.Connection, otherwise: str, table: str, values: Sequence[object]) -> None:
    marks = ", ".join("?" * (len(values) + 1))
    connection.execute(f"INSERT OR {otherwise} INTO {table} VALUES ({marks})", (*values, checksum(table, values)))


def rows(
    connection: sqlite3.Connection, table: str, where: str = "", values: Sequence[object] = (), *, order: str = ""
) -> list[Row]:
    """The rows that meet a condition, each checked; DamagedError names the table if one is not as it was written."""
    columns = ", ".join(COLUMNS[table])
    condition = f" WHERE {where}" if where else ""
    ordered = f" ORDER BY {order}" if order else ""
    found = connection.execute(f"SELECT {columns}, crc FROM {table}{condition}{ordered}", values).fetchall()
    for *row, crc in found:
        if checksum(table, row) != crc:
            raise DamagedError(f"a row of its table '{table}' is not as it was written")
    return [tuple(row[:-1]) for row in found]


def changes_of(connection: sqlite3.Connection) -> tuple[str, int]:
    """The id of the log, and how many changes the catalogue has seen."""
    found = connection.execute("SELECT log, changes, crc FROM meta").fetchall()
    if len(found) != 1 or checksum("meta", found[0][:2]) != found[0][2]:
        raise DamagedError("its own description is not as it was written")
    return str(found[0][0]), int(found[0][1])


def count_change(connection: sqlite3.Connection) -> int:
    """One more change, inside of it."""
    log_id, changes = changes_of(connection)
    crc = checksum("meta", (log_id, changes + 1))
    connection.execute("UPDATE meta SET changes = ?, crc = ?", (changes + 1, crc))
    return changes + 1


@contextmanager
def read_snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all that is read in the block be of one moment, whatever other processes write meanwhile."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        _end_transaction(connection)


def _end_transaction(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # an error may have ended it
        connection.execute("COMMIT")


def check_total(connection: sqlite3.Connection, table: str) -> None:
    """DamagedError if a row of the table is missing, or is not as it was written. For use in `read_snapshot`."""
    rows(connection, table)
    found = connection.execute(f"SELECT count(*), coalesce(sum(crc), 0) FROM {table}").fetchone()
    total = connection.execute("SELECT count, digest FROM totals WHERE name = ?", (table,)).fetchone()
    if total != found:
        raise DamagedError(f"its table '{table}' has {found[0]} rows, which are not those that were written")


def check_everything(connection: sqlite3.Connection, version: int) -> None:
    """DamagedError unless structure, declarations and rows are as they were written in this format.

    Transactions are left out: there may be many, and `Catalog.outcome` checks all of them when it does not find one.
    """
    (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise DamagedError(str(problem).replace("\n", " "))
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE name <> 'sqlite_sequence'").fetchall()
    if sorted(str(sql) for (sql,) in found) != sorted(statements(tables_of(version))):
        raise DamagedError("its declarations are not as they were written")
    for table in tables_of(version):
        if table != "transactions":
            check_total(connection, table)
