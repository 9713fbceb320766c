"""Asking the views of one snapshot with SQL: DuckDB in memory, over the mapped runs, and nothing else in its reach."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from penstock.derive.views.answer import Answer
from penstock.derive.views.open_view import COPIES, LIVE, OpenView, number_array
from penstock.derive.views.statement import Equality, Statement, read_statement
from penstock.errors import DeclarationError, LimitError, PenstockError
from penstock.log.ddl import closest

if TYPE_CHECKING:
    from penstock.derive.views.snapshot import Snapshot

BATCH_ROWS = 65_536
_NO_COLUMN = re.compile(r'(?:Referenced column|column named) "([^"]+)"')
_CANDIDATES = re.compile(r"\n\n?(?:LINE \d+:|Candidate bindings:).*", re.DOTALL)

# Databases without tables, by process and memory limit. A question is a connection of its own: 40 ms less each.
_databases: dict[tuple[int, int | None], duckdb.DuckDBPyConnection] = {}
_opening = threading.Lock()

Parameters = Sequence[object] | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What an answer may take; None: no limit, but that of the machine.

    - `seconds`: from the question until its last row is taken.
    - `rows`: how many it may have. One with more is a LimitError, never cut short in silence.
    - `memory`: bytes for sorting, grouping and joining, shared by all questions of the process with the same limit.
    """

    seconds: float | None = None
    rows: int | None = None
    memory: int | None = None


def ask(snapshot: Snapshot, sql: str, parameters: Parameters, limits: QueryLimits | None) -> Answer:
    """Answer a question:

    1. Read it with DuckDB's parser, and refuse what does more than read views.
    2. Open the views that it names; where it can only mean one row of a key, look that up instead.
    3. Show them to a connection of its own, which sees nothing else.
    4. Let DuckDB answer it, a batch of rows at a time.
    """
    allowed = limits or QueryLimits()
    given = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
    question = _Question(_database(allowed.memory).cursor(), allowed)
    try:
        with question.plain_errors({}):
            statement = read_statement(question.connection, sql, snapshot.stored)  # 1
        opened = {name: snapshot.open(name) for name in statement.views}
        with question.plain_errors(opened):
            for view in opened.values():
                _show(question.connection, view, _only_row(view, statement, given))  # 2 and 3
            relation = question.connection.sql(sql, params=given)  # 4
            question.start(relation, opened)
            whole = {number for number, type_ in enumerate(relation.types) if "HUGEINT" in str(type_)}
        return Answer(snapshot, question, frozenset(whole))
    except BaseException:
        question.close()
        raise


def _database(memory: int | None) -> duckdb.DuckDBPyConnection:
    """A database that cannot reach files, the network or extensions, and whose settings cannot be changed."""
    with _opening:
        if (os.getpid(), memory) not in _databases:
            config: dict[str, str | bool | int | float | list[str]] = {
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "allow_unsigned_extensions": "false",
                "python_enable_replacements": "false",
                "temp_directory": "",
            }
            if memory is not None:
                config["memory_limit"] = f"{memory}B"
            made = duckdb.connect(":memory:", config=config)
            made.execute("SET GLOBAL TimeZone = 'UTC'")
            made.execute("SET lock_configuration = true")
            _databases[os.getpid(), memory] = made
        return _databases[os.getpid(), memory]


# -- views in DuckDB --------------------------------------------------------------------------------------------------


def _show(connection: duckdb.DuckDBPyConnection, view: OpenView, row: pa.Table | None) -> None:
    name = _quoted(view.name)
    if row is not None:
        connection.register(view.name, row)
        return
    rows = view.rows
    hides = LIVE in rows.table.schema.names
    if not hides and rows.repeated is None:
        connection.register(view.name, rows.table)
        return
    columns = ", ".join(map(_quoted, view.schema.names))
    connection.register(f"_penstock_rows_{view.name}", rows.table)
    selected = f"SELECT {columns} FROM {_quoted(f'_penstock_rows_{view.name}')}" + (f" WHERE {LIVE}" if hides else "")
    if rows.repeated is not None:
        connection.register(f"_penstock_copies_{view.name}", rows.repeated)
        copies = _quoted(f"_penstock_copies_{view.name}")
        selected += f" UNION ALL SELECT {columns} FROM (SELECT {columns}, unnest(range({COPIES})) FROM {copies})"
    connection.execute(f"CREATE TEMP VIEW {name} AS {selected}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _only_row(view: OpenView, statement: Statement, parameters: list[object] | dict[str, object]) -> pa.Table | None:
    """The only row that a question can be about, or none, as a table; None if it may be about more.

    DuckDB still evaluates the whole question, on this row: what is left out could not have been in the answer.
    """
    conditions = {equality.column: equality for equality in statement.equalities.get(view.name, ())}
    key = view.stored.key
    if not key or view.stored.growth != "keyed" or not all(name.lower() in conditions for name in key):
        return None
    values = []
    for name, type_ in zip(key, view.key.types, strict=True):
        value = _value(conditions[name.lower()], parameters)
        if not _is_certain(value, type_):
            return None
        values.append(value)
    found = view.find(tuple(values))
    # Copied: DuckDB does not take a slice with structs in it.
    batches = [] if found is None else [found.batch.take(number_array(np.array([found.at])))]
    return pa.Table.from_batches(batches, view.schema)


def _value(equality: Equality, parameters: list[object] | dict[str, object]) -> object:
    if equality.parameter is None:
        return equality.constant
    if isinstance(parameters, dict):
        return parameters.get(equality.parameter)
    number = int(equality.parameter) if equality.parameter.isdecimal() else 0
    return parameters[number - 1] if 1 <= number <= len(parameters) else None


def _is_certain(value: object, type_: pa.DataType) -> bool:
    """Whether this value in SQL means this value of the type and no other: no text that would be cast, no rounding."""
    if pa.types.is_integer(type_):
        bound = 2 ** (type_.bit_width - 1)
        return type(value) is int and -bound <= value < bound
    if pa.types.is_string(type_):
        return type(value) is str
    if pa.types.is_date32(type_):
        return type(value) is date
    if isinstance(type_, pa.TimestampType):
        return type(value) is datetime and (value.tzinfo is None) == (type_.tz is None)
    return type(value) is bool and pa.types.is_boolean(type_)


# -- one question -----------------------------------------------------------------------------------------------------


class _Question:
    """A question under way: its connection, its batches, and what it may take."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> None:
        self.connection = connection
        self._limits = limits
        self._views: Mapping[str, OpenView] = {}
        self._reader: pa.RecordBatchReader | None = None
        self._closed = False
        self._late = False
        self._timer: threading.Timer | None = None
        if limits.seconds is not None:
            self._timer = threading.Timer(limits.seconds, self._interrupt)
            self._timer.daemon = True
            self._timer.start()

    @property
    def schema(self) -> pa.Schema:
        assert self._reader is not None
        return self._reader.schema

    def start(self, relation: duckdb.DuckDBPyRelation, views: Mapping[str, OpenView]) -> None:
        self._views = views
        self._reader = relation.to_arrow_reader(BATCH_ROWS)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        taken = 0
        while not self._closed and self._reader is not None:
            with self.plain_errors(self._views):
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    return
            taken += batch.num_rows
            if self._limits.rows is not None and taken > self._limits.rows:
                raise LimitError(
                    f"query: the answer has more than {self._limits.rows} rows", hint="add a LIMIT, or allow more"
                )
            yield batch

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            self._closed = True
            self._reader = None
            self.connection.close()

    def _interrupt(self) -> None:
        self._late = True
        with suppress(duckdb.Error):
            self.connection.interrupt()

    @contextmanager
    def plain_errors(self, views: Mapping[str, OpenView]) -> Iterator[None]:
        """Say in plain words what is wrong with a question."""
        try:
            if self._late:
                raise self._too_late()
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._late:
                raise self._too_late() from None
            raise _plain_error(error, self._limits, views) from error

    def _too_late(self) -> LimitError:
        return LimitError(
            f"query: it took more than {self._limits.seconds:g} seconds, and was stopped",
            hint="ask for less, or allow more",
        )


def _plain_error(error: Exception, limits: QueryLimits, views: Mapping[str, OpenView]) -> PenstockError:
    text = str(error)
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in text:
        allowed = "this machine has" if limits.memory is None else f"{limits.memory:,} bytes"
        return LimitError(f"query: it needs more memory than {allowed}", hint="ask for less, or allow more")
    if unknown := _NO_COLUMN.search(text):
        names = sorted({name for view in views.values() for name in view.schema.names})
        hint = closest(unknown[1], names) or f"the columns are: {', '.join(names)}"
        return DeclarationError(f"query: there is no column '{unknown[1]}'", hint=hint)
    plain = _CANDIDATES.sub("", text).partition(": ")[2] or text
    return DeclarationError(
        f"query: {plain.strip()}", hint="questions are asked in DuckDB's SQL: https://duckdb.org/docs/sql"
    )
