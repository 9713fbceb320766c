"""SQL on the views of one snapshot: DuckDB in memory, over the mapped runs, with access to nothing else."""

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
from penstock.names import quoted_name
from penstock.suggest import closest

if TYPE_CHECKING:
    from penstock.derive.views.snapshot import Snapshot

BATCH_ROWS = 65_536
_NO_COLUMN = re.compile(r'(?:Referenced column|column named) "([^"]+)"')
_CANDIDATES = re.compile(r"\n\n?(?:LINE \d+:|Candidate bindings:).*", re.DOTALL)

# Empty databases by process and memory limit. Each query only opens a connection to one, which saves 40 ms.
_databases: dict[tuple[int, int | None], duckdb.DuckDBPyConnection] = {}
_opening = threading.Lock()

Parameters = Sequence[object] | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may use. None: no limit but that of the machine.

    - `seconds`: from the start of the query until its last row is read.
    - `rows`: how many rows the answer may have. More is a LimitError; an answer is never silently truncated.
    - `memory`: bytes for sorting, grouping and joining, shared by all queries of the process with the same limit.
    """

    seconds: float | None = None
    rows: int | None = None
    memory: int | None = None


def run_query(snapshot: Snapshot, sql: str, parameters: Parameters, limits: QueryLimits | None) -> Answer:
    """Run a query:

    1. Parse it with DuckDB's parser, and refuse whatever does more than read views.
    2. Open the views that it names; if it can only mean the row of one key, look that row up instead.
    3. Register them with a connection of its own, which sees nothing else.
    4. Let DuckDB run it, one batch of rows at a time.
    """
    allowed = limits or QueryLimits()
    bound = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
    running = _RunningQuery(_database(allowed.memory).cursor(), allowed)
    try:
        with running.query_errors({}):
            statement = read_statement(running.connection, sql, snapshot.stored_views)  # 1
        open_views = {name: snapshot.open(name) for name in statement.views}
        with running.query_errors(open_views):
            for view in open_views.values():
                _register_view(running.connection, view, _only_row(view, statement, bound))  # 2 and 3
            relation = running.connection.sql(sql, params=bound)  # 4
            running.start(relation, open_views)
            whole_numbers = {number for number, type_ in enumerate(relation.types) if "HUGEINT" in str(type_)}
        return Answer(snapshot, running, frozenset(whole_numbers))
    except BaseException:
        running.close()
        raise


def _database(memory: int | None) -> duckdb.DuckDBPyConnection:
    """A database, opened once, that cannot reach files, the network or extensions, and whose settings are locked."""
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
            database = duckdb.connect(":memory:", config=config)
            database.execute("SET GLOBAL TimeZone = 'UTC'")
            database.execute("SET lock_configuration = true")
            _databases[os.getpid(), memory] = database
        return _databases[os.getpid(), memory]


# -- views in DuckDB --------------------------------------------------------------------------------------------------


def _register_view(connection: duckdb.DuckDBPyConnection, view: OpenView, row: pa.Table | None) -> None:
    name = quoted_name(view.name)
    if row is not None:
        connection.register(view.name, row)
        return
    rows = view.rows
    hides = LIVE in rows.table.schema.names
    if not hides and rows.repeated is None:
        connection.register(view.name, rows.table)
        return
    columns = ", ".join(map(quoted_name, view.schema.names))
    connection.register(f"_penstock_rows_{view.name}", rows.table)
    selected = f"SELECT {columns} FROM {quoted_name(f'_penstock_rows_{view.name}')}" + (
        f" WHERE {LIVE}" if hides else ""
    )
    if rows.repeated is not None:
        connection.register(f"_penstock_copies_{view.name}", rows.repeated)
        copies = quoted_name(f"_penstock_copies_{view.name}")
        selected += f" UNION ALL SELECT {columns} FROM (SELECT {columns}, unnest(range({COPIES})) FROM {copies})"
    connection.execute(f"CREATE TEMP VIEW {name} AS {selected}")


def _only_row(view: OpenView, statement: Statement, parameters: list[object] | dict[str, object]) -> pa.Table | None:
    """A table with the only row that a query can be about, or without rows; None if it may be about more.

    DuckDB still runs the whole query, on this row: the rows left out could not have been in the answer.
    """
    conditions = {equality.column: equality for equality in statement.equalities.get(view.name, ())}
    key = view.stored.key
    if not key or view.stored.growth != "keyed" or not all(name.lower() in conditions for name in key):
        return None
    values = []
    for name, type_ in zip(key, view.key.types, strict=True):
        value = _bound_value(conditions[name.lower()], parameters)
        if not _means_exactly(value, type_):
            return None
        values.append(value)
    found = view.find(tuple(values))
    # Copied, because DuckDB does not accept a slice that contains structs.
    batches = [] if found is None else [found.batch.take(number_array(np.array([found.at])))]
    return pa.Table.from_batches(batches, view.schema)


def _bound_value(equality: Equality, parameters: list[object] | dict[str, object]) -> object:
    if equality.parameter is None:
        return equality.constant
    if isinstance(parameters, dict):
        return parameters.get(equality.parameter)
    number = int(equality.parameter) if equality.parameter.isdecimal() else 0
    return parameters[number - 1] if 1 <= number <= len(parameters) else None


def _means_exactly(value: object, type_: pa.DataType) -> bool:
    """Whether SQL takes this value as exactly this value of the type: it is not cast from text, and not rounded."""
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


# -- one query --------------------------------------------------------------------------------------------------------


class _RunningQuery:
    """A running query: its connection, its batches and its limits. It implements `Batches`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> None:
        self.connection = connection
        self._limits = limits
        self._views: Mapping[str, OpenView] = {}
        self._reader: pa.RecordBatchReader | None = None
        self._closed = False
        self._timed_out = False
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
            with self.query_errors(self._views):
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
        self._timed_out = True
        with suppress(duckdb.Error):
            self.connection.interrupt()

    @contextmanager
    def query_errors(self, views: Mapping[str, OpenView]) -> Iterator[None]:
        """Raise errors of DuckDB in this block as errors of Penstock, in plain words."""
        try:
            if self._timed_out:
                raise self._timeout_error()
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._timed_out:
                raise self._timeout_error() from None
            raise _query_error(error, self._limits, views) from error

    def _timeout_error(self) -> LimitError:
        return LimitError(
            f"query: it took more than {self._limits.seconds:g} seconds, and was stopped",
            hint="ask for less, or allow more",
        )


def _query_error(error: Exception, limits: QueryLimits, views: Mapping[str, OpenView]) -> PenstockError:
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
        f"query: {plain.strip()}", hint="queries are written in DuckDB's SQL: https://duckdb.org/docs/sql"
    )
