"""The rows of a transaction that is still open: given to the pump, and not to be found in the topic yet.

Those of a large transaction are moved to a file, so that memory stays flat.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

_IN_MEMORY_BYTES = 32 * 1024 * 1024
_MARKS = "_penstock_deleted"  # no column of a topic has such a name

OpenBatch = tuple[pa.RecordBatch, pa.BooleanArray | None]


class OpenRowsOfTable:
    """Collects batches of one table, to be read again in their order; `clear` when their transaction is complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches: list[OpenBatch] = []
        self._bytes = 0
        self._file: BinaryIO | None = None
        self._ends: list[int] = []  # of what was moved to the file

    def __bool__(self) -> bool:
        return bool(self._batches or self._ends)

    def add(self, rows: pa.RecordBatch, deleted: pa.BooleanArray | None) -> None:
        self._batches.append((rows, deleted))
        self._bytes += rows.nbytes
        if self._bytes > _IN_MEMORY_BYTES:
            self._move_to_file()

    def clear(self) -> None:
        self._batches, self._bytes, self._ends = [], 0, []
        if self._file is not None:
            self._file.close()
            self._file = None

    def __iter__(self) -> Iterator[OpenBatch]:
        start = 0
        for end in self._ends:
            assert self._file is not None
            self._file.seek(start)
            yield _decode(self._file.read(end - start))
            start = end
        yield from list(self._batches)

    def _move_to_file(self) -> None:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by clear
        self._file.seek(0, 2)
        for batch in self._batches:
            self._file.write(_encode(*batch))
            self._ends.append(self._file.tell())
        self._batches, self._bytes = [], 0


def _encode(rows: pa.RecordBatch, deleted: pa.BooleanArray | None) -> pa.Buffer:
    marked = rows if deleted is None else rows.append_column(_MARKS, deleted)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, marked.schema) as writer:
        writer.write_batch(marked)
    return stream.getvalue()


def _decode(content: bytes) -> OpenBatch:
    with pa.ipc.open_stream(content) as reader:
        marked = reader.read_next_batch()
    if _MARKS not in marked.schema.names:
        return marked, None
    return marked.drop_columns([_MARKS]), cast(pa.BooleanArray, marked.column(_MARKS))
