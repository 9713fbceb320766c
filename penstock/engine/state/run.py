"""A run: rows of one state, sorted by a 64-bit order, in an Arrow file that never changes.

Every row has an `_order` (by which it is found), an `_id` (with the order it tells rows apart: 128 bits, so that no two
keys of any real state agree in both) and columns of its own. The file is mapped, never read as a whole, except once
by each process that opens it, to see that it is undamaged.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from penstock.errors import DamagedError

ORDER = "_order"
ID = "_id"

Hashes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

# Each process keeps this many runs mapped: a mapping costs address space, opening one again costs reading it once.
MOST_OPEN = 256


@dataclass(frozen=True, slots=True)
class RunFile:
    """Where a run is (relative to the app's folder) and what it must hold; what a commit remembers of it."""

    path: str
    rows: int
    bytes: int
    crc: int

    def to_document(self) -> dict[str, object]:
        return {"path": self.path, "rows": self.rows, "bytes": self.bytes, "crc": self.crc}

    @staticmethod
    def from_document(document: Mapping[str, object]) -> RunFile:
        path, rows, size, crc = (document[name] for name in ("path", "rows", "bytes", "crc"))
        assert isinstance(path, str) and isinstance(rows, int) and isinstance(size, int) and isinstance(crc, int)
        return RunFile(path, rows, size, crc)


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a run, in memory or mapped: `batch` holds all columns, sorted by `_order`."""

    batch: pa.RecordBatch

    @property
    def order(self) -> Hashes:
        return hashes(self.batch, ORDER)

    @property
    def id(self) -> Hashes:
        return hashes(self.batch, ID)

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)


def hashes(batch: pa.RecordBatch, name: str) -> Hashes:
    """A column of 64-bit hashes as numbers, without a copy."""
    return batch.column(name).to_numpy(zero_copy_only=True).view(np.uint64)


def sorted_run(batch: pa.RecordBatch) -> Run:
    """A run of these rows, which may be in any order."""
    order = hashes(batch, ORDER)
    if len(order) > 1 and not bool(np.all(order[:-1] <= order[1:])):
        batch = batch.take(pa.array(np.argsort(order, kind="stable")))
    return Run(batch)


def store_run(directory: Path, folder: str, prefix: str, run: Run) -> RunFile:
    """Write a run durably under a name that nobody else has; it begins with `prefix`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, run.batch.schema) as writer:
        writer.write_batch(run.batch)
    content = sink.getvalue()
    place = directory / folder
    if not place.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        for made in (place.parent, place.parent.parent):
            _sync_folder(made)
    path = place / f"{prefix}-{secrets.token_hex(4)}.arrow"
    draft = path.with_suffix(".tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    _sync_folder(place)
    return RunFile(str(path.relative_to(directory)), run.rows, content.size, crc32c(memoryview(content)))


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_run(directory: Path, file: RunFile) -> Run:
    """The run of a file, mapped and checked; kept open for the next time."""
    return _opened(str(directory), file, os.getpid())


@lru_cache(maxsize=MOST_OPEN)
def _opened(directory: str, file: RunFile, process: int) -> Run:
    path = Path(directory) / file.path
    try:
        mapped = pa.memory_map(str(path))
    except FileNotFoundError:
        raise _damaged(path, "the file is missing") from None
    content = mapped.read_buffer()
    if content.size != file.bytes:
        raise _damaged(path, f"it has {content.size} bytes instead of {file.bytes}")
    if crc32c(memoryview(content)) != file.crc:
        raise _damaged(path, "its checksum is wrong")
    batch = pa.ipc.open_file(content).get_batch(0)
    if batch.num_rows != file.rows:
        raise _damaged(path, f"it has {batch.num_rows} rows instead of {file.rows}")
    return Run(batch)


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(
        f"state file {path}: {what}",
        hint="build the state again from the log: penstock run --rebuild",
    )
