"""A whole table as of one moment, to compare it with what was captured.

Everything that the snapshot shows was committed before its end. The reverse is not exact: a transaction whose commit is
in the server's log before the end may become visible a moment later. Whoever compares must take a difference as real
only if it is still there in a second snapshot, or compare again the keys that changed around the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from penstock.capture.postgres.catalog import CapturedTable, describe_tables
from penstock.capture.postgres.chunk_size import ChunkSize
from penstock.capture.postgres.chunks import emit_message, read_table_chunk, take_snapshot
from penstock.capture.postgres.connection import Connection, connect, server_errors
from penstock.capture.postgres.position import lsn_text
from penstock.contracts import SourceOptions, SourceTable, TableSnapshot


def read_whole_table(url: str, asked: SourceTable, options: SourceOptions) -> TableSnapshot:
    """The snapshot is taken now; its rows are read as they are asked for, in chunks."""
    connection = connect(url)
    try:
        with server_errors(url):
            (table,) = describe_tables(connection, [asked], dropped=options.dropped)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"LOCK TABLE {table.own_rows} IN ACCESS SHARE MODE".encode())
            _, end = take_snapshot(connection)
        with closing(connect(url)) as writing, server_errors(url):
            emit_message(writing)  # so that a capture of an idle server comes behind the end
    except BaseException:
        connection.close()
        raise
    return TableSnapshot(lsn_text(end), _batches(url, connection, table, options.chunk_rows))


def _batches(url: str, connection: Connection, table: CapturedTable, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    after: tuple[str, ...] | None = None
    size = ChunkSize(chunk_rows, table.row_bytes)
    with closing(connection), server_errors(url):
        while True:
            limit = size.rows
            rows = read_table_chunk(connection, table, after, limit)
            yield rows.batch
            size.learn(limit, rows.size)
            if rows.last is None:
                return
            after = rows.last
