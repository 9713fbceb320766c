"""All rows of a table as of one moment, through a temporary file.

Whoever compares the rows may take long, and an open transaction may keep the writers of the user from committing. So
the rows are read at once, into a file, and given from there.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.capture.sqlite.queries import copy_query
from penstock.capture.sqlite.rows import RowShape

_ROWS = 5_000


def spill_table(connection: sqlite3.Connection, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Write all rows of a table to a file, and return them from there, once. Then the file is removed."""
    folder = tempfile.TemporaryDirectory(prefix="penstock-")
    file = Path(folder.name) / "rows.arrow"
    try:
        with pa.ipc.new_stream(str(file), shape.schema) as writer:
            cursor = connection.execute(*copy_query(shape, None))
            while rows := cursor.fetchmany(_ROWS):
                writer.write_batch(shape.to_batch(rows))
    except BaseException:
        folder.cleanup()
        raise
    return _read_spilled_rows(folder, file)


def _read_spilled_rows(folder: tempfile.TemporaryDirectory[str], file: Path) -> Iterator[pa.RecordBatch]:
    with folder, pa.OSFile(str(file), "rb") as opened, pa.ipc.open_stream(opened) as reader:
        yield from reader
