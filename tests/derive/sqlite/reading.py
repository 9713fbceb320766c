"""How the tests read what a SQLite target holds: values of Python by the declared types, one question, one moment.

A question is answered inside one read transaction, so that all views in it, and the epoch it is answered with, come
from the same commit. It holds nobody up, and nobody changes what it sees.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType

from penstock.derive.sqlite.connection import open_for_reading, plain_fault, plain_faults
from penstock.errors import DeclarationError, PenstockError
from tests.derive.sqlite.declared import as_parameter, register_converters

BUSY_SECONDS = 10.0

Row = tuple[object, ...]

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_NO_WRITING = re.compile(r"cannot (modify|VACUUM) ")
_NO_TABLE = re.compile(r"no such table: (?:main\.|temp\.)?(.+)")
_NO_COLUMN = re.compile(r"no such column: (?:.+\.)?(.+)")
# Faults of the file and of the machine; all others are about the question.
_FAULTS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Which epoch the views show. `applied_at` is None before the first."""

    app: str
    epoch: int
    applied_at: datetime | None
    facts: Mapping[str, object]


class Answer:
    """The rows of an answer, read as they are taken. It sees one moment, until it is closed or read to the end.

    A column that is a column of a view has the values of its type: datetime in UTC, date, Decimal, bool, list and dict.
    What is computed in SQL is what SQLite makes of it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, cursor: sqlite3.Cursor, moment: Moment) -> None:
        self.columns = tuple(column[0] for column in cursor.description)
        self.moment = moment
        self._path = path
        self._connection = connection
        self._cursor = cursor
        self._closed = False

    @property
    def epoch(self) -> int:
        """The epoch whose views these rows come from."""
        return self.moment.epoch

    def __iter__(self) -> Iterator[Row]:
        with closing(self):
            while not self._closed:
                with _plain_refusals(self._path, self._connection, ""):
                    row = self._cursor.fetchone()
                if row is None:
                    return
                yield row

    def dicts(self) -> Iterator[dict[str, object]]:
        """The rows by the names of their columns; of two columns with one name the second gets a number."""
        names = _distinct(self.columns)
        return (dict(zip(names, row, strict=True)) for row in self)

    def close(self) -> None:
        """Let go of the moment. Needed where not all rows are read: an open answer keeps the WAL from shrinking."""
        if not self._closed:
            self._closed = True
            self._cursor.close()  # a cursor in use would keep the connection open behind our back
            self._connection.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def query(
    path: str | os.PathLike[str],
    sql: str,
    parameters: Sequence[object] | Mapping[str, object] = (),
    *,
    busy_seconds: float = BUSY_SECONDS,
) -> Answer:
    """Answer a question in SQLite's SQL about the views in this file. Nothing can be changed by it.

    `parameters` take the places of `?` or `:name` in it. Datetimes (without a zone: as they are), dates and decimals
    may be among them.
    """
    file = Path(path)
    connection = open_moment(file, busy_seconds=busy_seconds)
    try:
        with plain_faults(file):
            moment = moment_of(connection)
            register_converters(declared for view in _columns(connection).values() for _, declared, _ in view)
        connection.set_authorizer(_only_reading)
        with _plain_refusals(file, connection, sql):
            cursor = connection.execute(sql, _adapted(parameters))
        if cursor.description is None:
            raise DeclarationError(f"query: this asks for nothing; found {sql.strip()!r}", hint="begin with 'select'")
        return Answer(file, connection, cursor, moment)
    except BaseException:
        connection.close()
        raise


def open_moment(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    """A connection that sees the views as they are now, whatever is applied later."""
    with plain_faults(path):
        connection = open_for_reading(path, busy_seconds=busy_seconds)
        try:
            connection.execute("BEGIN")
            # The first look at a table decides which moment the transaction sees.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    return connection


def moment_of(connection: sqlite3.Connection) -> Moment:
    register_converters(["TIMESTAMP_TEXT", "JSON_TEXT"])
    made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'penstock_epochs'").fetchone()
    row = made and connection.execute("SELECT app, epoch, applied_at, facts FROM penstock_epochs").fetchone()
    return Moment(*row) if row else Moment("", 0, None, {})


def _columns(connection: sqlite3.Connection) -> dict[str, list[tuple[str, str, str]]]:
    """The columns of each view that can be asked for: name, declared type, Spark type."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'penstock_views'").fetchone():
        return {}
    return dict(connection.execute("SELECT name, columns FROM penstock_views WHERE NOT building ORDER BY name"))


def _only_reading(action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    forbidden = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    return sqlite3.SQLITE_OK if action in _READING and not forbidden else sqlite3.SQLITE_DENY


def _adapted(parameters: Sequence[object] | Mapping[str, object]) -> tuple[object, ...] | dict[str, object]:
    if isinstance(parameters, Mapping):
        return {name: as_parameter(value) for name, value in parameters.items()}
    return tuple(as_parameter(value) for value in parameters)


@contextmanager
def _plain_refusals(path: Path, connection: sqlite3.Connection, sql: str) -> Iterator[None]:
    """Say in plain words what is wrong with a question."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        with plain_faults(path):
            refusal = _refusal(path, connection, sql, error)
        raise refusal from error


def _refusal(path: Path, connection: sqlite3.Connection, sql: str, error: Exception) -> PenstockError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if isinstance(error, sqlite3.Error) and code in _FAULTS:
        return plain_fault(path, error)
    if code == sqlite3.SQLITE_AUTH or _NO_WRITING.match(str(error)):
        return DeclarationError(
            f"query: views can only be read; found '{' '.join(sql.split()[:1]).upper()}'",
            hint="ask with 'select'; views change when the app applies an epoch",
        )
    connection.set_authorizer(None)
    columns = _columns(connection)
    if table := _NO_TABLE.fullmatch(str(error)):
        return _unknown_view(table[1], list(columns))
    if column := _NO_COLUMN.fullmatch(str(error)):
        return _unknown_column(column[1], columns)
    return DeclarationError(f"query: {error}", hint="questions are asked in SQLite's SQL: https://sqlite.org/lang.html")


def _unknown_view(name: str, views: list[str]) -> DeclarationError:
    from penstock.log.ddl import closest

    hint = closest(name, views) or "'penstock views' lists them"
    return DeclarationError(f"query: there is no view '{name}'; there is {', '.join(views) or 'none'}", hint=hint)


def _unknown_column(name: str, columns: dict[str, list[tuple[str, str, str]]]) -> DeclarationError:
    from penstock.log.ddl import closest

    names = sorted({column[0] for view in columns.values() for column in view})
    hint = closest(name, names) or f"the columns of all views are: {', '.join(names)}"
    return DeclarationError(f"query: there is no column '{name}'", hint=hint)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of which none occurs twice: a, b, a become a, b, a_2."""
    chosen: list[str] = []
    for name in names:
        number, free = 1, name
        while free in chosen:
            number += 1
            free = f"{name}_{number}"
        chosen.append(free)
    return chosen
