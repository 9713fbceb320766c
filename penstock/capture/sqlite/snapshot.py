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


def spill_rows(connection: sqlite3.Connection, shape: RowShape, file: Path) -> None:
    """Write all rows of a table to a file."""
    with pa.ipc.new_stream(str(file), shape.schema) as writer:
        cursor = connection.execute(*copy_query(shape, None))
        while rows := cursor.fetchmany(_ROWS):
            writer.write_batch(shape.to_batch(rows))


def read_spilled_rows(folder: tempfile.TemporaryDirectory[str], file: Path) -> Iterator[pa.RecordBatch]:
    """The rows that were written, once. Removes the folder of the file."""
    with folder, pa.OSFile(str(file), "rb") as opened, pa.ipc.open_stream(opened) as reader:
        yield from reader
