"""Reading a table in chunks: each in a transaction of its own, of which it is known exactly what it sees.

A chunk takes its snapshot at once, and reads its rows in a thread, so that the server and the log work at the same
time. It takes the lock that every SELECT takes, and before its snapshot: a TRUNCATE or a rewrite of the table, which
old snapshots do not hide, can then not come in between.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import pq

from penstock.capture.postgres.catalog import CapturedTable, literal, quoted
from penstock.capture.postgres.connection import Connection, cancel_statement, connect, server_errors
from penstock.capture.postgres.copy_rows import convert_copy, last_key, read_copy_csv, read_copy_texts
from penstock.capture.postgres.position import parse_lsn
from penstock.capture.postgres.visibility import Snapshot, parse_snapshot

_LOCK_SECONDS = "200ms"
_ROWS_PER_BLOCK = 50  # a guess, for tables without a key; blocks are 8 KiB
_EMIT = "SELECT pg_catalog.pg_logical_emit_message(true, 'penstock', '')"

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The rows of a chunk, and the bytes of their texts. `last` is its last key; None: there are no rows after it."""

    batch: pa.RecordBatch
    last: Key | None
    size: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that is being read: what its snapshot shows was committed before `lsn`."""

    table: CapturedTable
    snapshot: Snapshot
    lsn: int
    limit: int
    rows: Future[ChunkRows]


class ChunkReader:
    """Reads one chunk at a time. `ready` is a file descriptor that becomes readable when it is complete."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-copy")
        self.ready, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self.ready, False)
        self._is_closed = False

    def begin(
        self, table: CapturedTable, after: Key | None, limit: int, accept: Callable[[Snapshot], bool]
    ) -> Chunk | None:
        """Take a snapshot, and if it is accepted begin to read what comes after a key.

        None: it was not accepted, or somebody has locked the table.
        """
        with server_errors(self._url):
            connection = self._open()
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}'")
                connection.execute(f"LOCK TABLE {table.own_rows} IN ACCESS SHARE MODE".encode())
            except psycopg.errors.LockNotAvailable:
                connection.execute("ROLLBACK")
                return None
            snapshot, lsn = take_snapshot(connection)
            if not accept(snapshot):
                connection.execute("ROLLBACK")
                return None
        rows = self._thread.submit(self._read, table, after, limit, lsn)
        rows.add_done_callback(lambda _: self._notify())
        return Chunk(table, snapshot, lsn, limit, rows)

    def discard(self, chunk: Chunk) -> None:
        """Wait for the chunk, without using it."""
        chunk.rows.exception()
        self.clear()

    def clear(self) -> None:
        """Reset `ready`."""
        while True:
            try:
                if not os.read(self.ready, 64):
                    return
            except BlockingIOError:
                return

    def snapshot(self) -> Snapshot:
        """What is visible now. Only while no chunk is being read."""
        with server_errors(self._url):
            return take_snapshot(self._open())[0]

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._connection is not None:
            cancel_statement(self._connection, seconds=2.0)
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._connection is not None:
            self._connection.close()
        os.close(self.ready)
        os.close(self._wake)

    def _notify(self) -> None:
        if not self._is_closed:
            os.write(self._wake, b"!")

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url)
        return self._connection

    def _read(self, table: CapturedTable, after: Key | None, limit: int, lsn: int) -> ChunkRows:
        connection = self._open()
        with server_errors(self._url):
            rows = read_table_chunk(connection, table, after, limit)
            connection.execute("COMMIT")
            _flush_log(connection, lsn)
        return rows


def read_table_chunk(connection: Connection, table: CapturedTable, after: Key | None, limit: int) -> ChunkRows:
    """Read what comes after a key, in the transaction that is open."""
    if table.layout.has_row_id:
        clauses, last = _block_range(connection, table, after, limit)
        content = copy_out(connection, table, clauses)
        return ChunkRows(read_copy_csv(content, table.layout, 0), last, len(content))
    content = copy_out(connection, table, _key_range(connection, table, after, limit))
    texts = read_copy_texts(content, table.layout)
    last = last_key(texts, table.layout) if texts.num_rows == limit else None
    return ChunkRows(convert_copy(texts, table.layout, 0), last, len(content))


def take_snapshot(connection: Connection) -> tuple[Snapshot, int]:
    """The snapshot of the current statement or transaction, and an LSN before which all of it was committed."""
    row = connection.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return parse_snapshot(str(row[0])), parse_lsn(str(row[1]))


def emit_message(connection: Connection) -> None:
    """Write something into the server's log, and to its disk with all that was written before."""
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute(_EMIT)


def _flush_log(connection: Connection, lsn: int) -> None:
    """See that what the chunk shows cannot be lost in a crash of the server; the stream would never give it then."""
    row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    if row is None or parse_lsn(str(row[0])) < lsn:
        emit_message(connection)


def _key_range(connection: Connection, table: CapturedTable, after: Key | None, limit: int) -> str:
    """The rows of the next chunk: those after a key, in the order of the key."""
    # Without statistics the planner may prefer to read and sort the whole table for each chunk.
    connection.execute("SET LOCAL enable_seqscan = off")
    connection.execute("SET LOCAL enable_sort = off")
    key = ", ".join(quoted(name) for name in table.layout.key)
    begin = "" if after is None else f"WHERE ({key}) > ({', '.join(literal(text) for text in after)})"
    return f"{begin} ORDER BY {key} LIMIT {limit}"


def _block_range(connection: Connection, table: CapturedTable, after: Key | None, limit: int) -> tuple[str, Key | None]:
    """The same for a table without a key, which is read by blocks of its file, and where the next chunk begins."""
    start = int(after[0]) if after is not None else 0
    end = start + max(1, limit // _ROWS_PER_BLOCK)
    size = f"SELECT pg_relation_size({table.oid}) / current_setting('block_size')::int"
    row = connection.execute(size.encode()).fetchone()
    begin = f"WHERE ctid >= '({start},0)'::tid"
    if row is None or int(str(row[0])) <= end:
        return begin, None
    return f"{begin} AND ctid < '({end},0)'::tid", (str(end),)


def copy_out(connection: Connection, table: CapturedTable, clauses: str = "") -> bytearray:
    """The rows of a table, as CSV."""
    columns = ", ".join(quoted(column.name) for column in table.layout.table_columns)
    statement = f"COPY (SELECT {columns} FROM {table.own_rows} {clauses}) TO STDOUT (FORMAT csv)"
    libpq = connection.pgconn
    libpq.send_query(statement.encode())
    # Libpq gives each row in memory of its own. To add it to one array at once frees that; a list of rows would keep
    # Python's garbage collector busy, which takes eight times as long.
    rows = bytearray()
    _wait(libpq)
    result = libpq.get_result()
    while result is not None and result.status == pq.ExecStatus.COPY_OUT:
        _read_rows(libpq, rows)
        result = libpq.get_result()
    problem = None
    while result is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            problem = psycopg.errors.error_from_result(result, encoding="utf-8")
        result = libpq.get_result()
    if problem is not None:
        raise problem
    return rows


def _read_rows(libpq: pq.abc.PGconn, rows: bytearray) -> None:
    get = libpq.get_copy_data
    while True:
        length, row = get(1)
        if length > 0:
            rows += row
        elif length == 0:
            select.select([libpq.socket], [], [])
            libpq.consume_input()
        else:
            _wait(libpq)
            return


def _wait(libpq: pq.abc.PGconn) -> None:
    """Wait for a result with Python's lock released, so that the other threads go on."""
    libpq.flush()
    while libpq.is_busy():
        select.select([libpq.socket], [], [])
        libpq.consume_input()
