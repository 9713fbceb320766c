"""Reading tables as of an exact place in the binary log, without locking anything.

In MariaDB, START TRANSACTION WITH CONSISTENT SNAPSHOT says at which place of the binary log the snapshot is: it has all
transactions before that place, and none after it. So rows that were read in it are the table as of that place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.capture.mysql.catalog import CapturedTable, TableDefinition, describe_table
from penstock.capture.mysql.cells import Cells, result_cells
from penstock.capture.mysql.charsets import Charsets
from penstock.capture.mysql.connection import Session, quoted
from penstock.capture.mysql.position import Place
from penstock.capture.mysql.types import ColumnType
from penstock.capture.mysql.values import Column, array_from_query, query_expression
from penstock.errors import UnavailableError

_PAUSE_SECONDS = 0.005
_LONGEST_WAIT = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows of a table as of a place, in the order of the key. `after`: the last key, as SQL literals."""

    place: Place
    definition: TableDefinition
    rows: pa.RecordBatch
    after: tuple[str, ...]
    is_last: bool


def open_snapshot(session: Session, not_before: Place | None) -> Place:
    """Begin a transaction that sees the database as of a place, and return the place.

    A transaction can be read in the log shortly before it can be seen in a snapshot. So a snapshot may be of a place
    before `not_before`; then this tries again.
    """
    deadline = time.monotonic() + _LONGEST_WAIT
    while True:
        session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        status = {str(name).lower(): str(value) for name, value in session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'")}
        place = Place(status["binlog_snapshot_file"], int(status["binlog_snapshot_position"]))
        if not_before is None or not place.is_before(not_before):
            return place
        session.execute("COMMIT")
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"database {session.address.shown}: a snapshot is of {place}, which is before {not_before}; "
                "a transaction has been committing for half a minute"
            )
        time.sleep(_PAUSE_SECONDS)


def read_chunk(
    session: Session,
    table: CapturedTable,
    after: tuple[str, ...],
    *,
    limit: int,
    charsets: Charsets,
    dropped: frozenset[str],
    not_before: Place | None,
) -> Chunk:
    """The next rows of a table after a key, in a snapshot of their own: while it lasts, the server keeps old rows."""
    place = open_snapshot(session, not_before)
    try:
        # Until the end of the transaction nobody can change the definition.
        definition = describe_table(session, table, charsets, dropped)
        rows, after = _rows_after(session, definition, after, limit)
    finally:
        session.execute("COMMIT")
    return Chunk(place, definition, rows, after, is_last=len(rows) < limit)


def chunks_of_snapshot(session: Session, definition: TableDefinition, limit: int) -> Iterator[pa.RecordBatch]:
    """All rows of a table in a snapshot that is open, chunk by chunk."""
    after: tuple[str, ...] = ()
    while True:
        rows, after = _rows_after(session, definition, after, limit)
        if len(rows):
            yield rows
        if len(rows) < limit:
            return


def _rows_after(
    session: Session, definition: TableDefinition, after: tuple[str, ...], limit: int
) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    columns = {column.name: column for column in definition.columns}
    keys = [columns[name] for name in definition.key]
    rows = session.raw_rows(_statement(definition, keys, after, limit))
    # Keys are selected once more, in the form in which they are compared.
    cells = result_cells(rows, len(columns) + len(keys))
    arrays = [array_from_query(values, column) for values, column in zip(cells, definition.columns, strict=False)]
    times = pa.array(np.zeros(len(rows), np.int64)).view(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([*arrays, times], schema=definition.schema)
    if rows:
        after = tuple(_literal(values, key.type) for values, key in zip(cells[len(columns) :], keys, strict=True))
    return batch, after


def _statement(definition: TableDefinition, keys: Sequence[Column], after: tuple[str, ...], limit: int) -> str:
    shown = [query_expression(quoted(column.name), column.type) for column in definition.columns]
    compared = [_comparable(key) for key in keys]
    order = ", ".join(compared)
    where = f" WHERE {_greater(compared, after)}" if after else ""
    selected = ", ".join([*shown, *compared])
    return f"SELECT {selected} FROM {definition.table.quoted_name}{where} ORDER BY {order} LIMIT {limit}"


def _greater(keys: Sequence[str], after: Sequence[str]) -> str:
    """`(a, b) > (x, y)`, in a form for which the server uses the index of the key."""
    if len(keys) == 1:
        return f"{keys[0]} > {after[0]}"
    rest = _greater(keys[1:], after[1:])
    return f"{keys[0]} >= {after[0]} AND ({keys[0]} > {after[0]} OR ({rest}))"


def _comparable(key: Column) -> str:
    """The column in the form in which literals are compared with it: labels and floats are not stored as shown."""
    name = quoted(key.name)
    if key.type.kind in ("enum", "set"):
        return f"CAST({name} AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"
    return f"CAST({name} AS DOUBLE)" if key.type.kind == "float" else name


def _literal(cells: Cells, type_: ColumnType) -> str:
    """The last value as an SQL literal."""
    start = int(cells.starts[-1])
    value = cells.buffer[start : start + int(cells.lengths[-1])].tobytes()
    if type_.kind in ("binary", "fixed binary"):
        return f"X'{value.hex()}'"
    if type_.kind in ("text", "enum", "set"):
        return f"_utf8mb4 X'{value.hex()}'"
    if type_.kind == "bit":
        return str(int.from_bytes(value, "big"))
    if type_.kind in ("float", "double"):
        text = value.decode()
        return text if "e" in text else f"{text}e0"
    return value.decode() if type_.kind in ("whole", "decimal", "year") else f"'{value.decode()}'"
