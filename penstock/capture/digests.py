"""Digests of rows: equal for rows with equal values, and practically never for others. DuckDB computes them in columns.

A null adds nothing, so rows keep their digest when a column is added that they do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.names import quoted_name

if TYPE_CHECKING:
    import duckdb


def row_digests(rows: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The digest of each row over some of its columns. It may change with the version of DuckDB."""
    if not columns or not rows.num_rows:
        return np.zeros(rows.num_rows, np.uint64)
    # Positions as names: columns of the user may be called anything.
    table = pa.table([rows.column(name) for name in columns], names=[f"c{number}" for number in range(len(columns))])
    parts = [digest_of(quoted_name(f"c{number}"), name) for number, name in enumerate(columns)]
    connection = _connection().cursor()
    try:
        connection.register("given", table)
        found = connection.sql(f"select {combined(parts)} as digest from given").to_arrow_table()
        return np.asarray(found.column("digest").to_numpy(), np.uint64)
    finally:
        connection.close()


def digest_of(expression: str, name: str) -> str:
    """SQL of what a column adds to the digest of its row."""
    literal = "'" + name.replace("'", "''") + "'"
    return f"case when {expression} is null then 0::ubigint else hash({literal}, {expression}) end"


def combined(parts: Sequence[str]) -> str:
    digest = parts[0]
    for part in parts[1:]:
        digest = f"xor({digest}, {part})"
    return digest


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    import duckdb

    # One thread: the order of the rows is kept, and there is little to do at a time.
    return duckdb.connect(config={"threads": 1})
