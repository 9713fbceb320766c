"""What the answers are: DuckDB over all events at once, with the queries in answers/. No view is asked here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.nexmark.generator import SIDE_INPUT, Chunk, side_input

QUERIES = tuple(f"q{number}" for number in range(23))
TABLES = ("person", "auction", "bid")

_ANSWERS = Path(__file__).parent / "answers"


def load(connection: duckdb.DuckDBPyConnection, chunks: Iterable[Chunk]) -> None:
    """Fill the tables `person`, `auction`, `bid` and `side_input`. Times are in UTC and have no zone."""
    for chunk in chunks:
        for table, batch in zip(TABLES, chunk, strict=True):
            _insert(connection, table, batch)
    _insert(connection, SIDE_INPUT, side_input())


def sql(query: str) -> str:
    """The text of `q0`, ..., `q22`."""
    return (_ANSWERS / f"{query}.sql").read_text()


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """The rows that a view of this query ends with, in no order."""
    return connection.sql(sql(query)).to_arrow_table()


def _insert(connection: duckdb.DuckDBPyConnection, table: str, batch: pa.RecordBatch) -> None:
    connection.register("arrived", _without_zones(batch))
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} AS FROM arrived LIMIT 0")
    connection.execute(f"INSERT INTO {table} FROM arrived")
    connection.unregister("arrived")


def _without_zones(batch: pa.RecordBatch) -> pa.Table:
    """DuckDB would need an extension for zones."""
    columns = {
        name: column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.table(columns)
