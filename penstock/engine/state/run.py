"""A run: rows of one state, sorted by a 64-bit order, in an Arrow file that never changes.

Every row has an `_order`, by which it is found, an `_id`, which distinguishes rows of the same order, and columns of
its own. Rows are sorted by both. Together they are 128 bits, so no two keys of any real state share them. The file is
mapped. Each process reads it as a whole only once, to check that it is undamaged.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

from penstock.engine.state.columns import ID, ORDER
from penstock.engine.state.rows import hashes, take_rows
from penstock.engine.state.search import Hashes, argsort_by_key, is_sorted
from penstock.errors import DamagedError

# The runs that this process has open, by the folder of an app and a folder of runs in it.
_open_runs_by_folder: dict[tuple[Path, str], dict[RunFile, Run]] = {}


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run as a commit names it: its path, relative to the app's folder, and what the file must contain.

    At the watermark `expires` all its rows have expired; None: some never do.
    """

    path: str
    rows: int
    bytes: int
    crc: int
    expires: int | None = None

    def to_document(self) -> dict[str, object]:
        document = {"path": self.path, "rows": self.rows, "bytes": self.bytes, "crc": self.crc}
        return document if self.expires is None else {**document, "expires": self.expires}

    @staticmethod
    def from_document(document: Mapping[str, object]) -> RunFile:
        path, rows, size, crc = (document[name] for name in ("path", "rows", "bytes", "crc"))
        expires = document.get("expires")
        assert isinstance(path, str) and isinstance(rows, int) and isinstance(size, int) and isinstance(crc, int)
        assert expires is None or isinstance(expires, int)
        return RunFile(path, rows, size, crc, expires)


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a run, in memory or mapped: `batch` holds all columns, sorted by `_order` and `_id`."""

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


def sorted_run(batch: pa.RecordBatch) -> Run:
    """Sort these rows into a run."""
    order, id_ = hashes(batch, ORDER), hashes(batch, ID)
    return Run(batch if is_sorted(order, id_) else take_rows(batch, argsort_by_key(order, id_)))


def store_run(directory: Path, folder: str, prefix: str, run: Run, expires: int | None = None) -> RunFile:
    """Write a run durably, under a new name that begins with `prefix`."""
    return replace(store_batches(directory, folder, prefix, [run.batch]), expires=expires)


def store_batches(directory: Path, folder: str, prefix: str, batches: Iterable[pa.RecordBatch]) -> RunFile:
    """Like `store_run`, for batches as they arrive; there must be at least one."""
    parent = directory / folder
    if not parent.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        for new in (parent.parent, parent.parent.parent):
            _sync(new)
    path = parent / f"{prefix}-{secrets.token_hex(4)}.arrow"
    draft = path.with_suffix(".tmp")
    rows, rest = 0, iter(batches)
    first = next(rest)
    with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for batch in chain([first], rest):
            writer.write_batch(batch)
            rows += batch.num_rows
    with pa.memory_map(str(draft)) as mapped:
        content = mapped.read_buffer()
        size, crc = content.size, crc32c(memoryview(content))
    _sync(draft)
    draft.rename(path)
    _sync(parent)
    return RunFile(str(path.relative_to(directory)), rows, size, crc)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reachable(files: Sequence[RunFile], watermark: int) -> tuple[RunFile, ...]:
    """The files that have rows which have not expired."""
    return tuple(file for file in files if file.expires is None or file.expires > watermark)


def open_runs(directory: Path, folder: str, files: Sequence[RunFile]) -> tuple[Run, ...]:
    """Open the runs of a state partition, which are in this folder.

    They stay open until the next call for this folder. So a process checks each file once, and closes files that were
    merged into others: an open file takes space even after it is removed.
    """
    open_already = _open_runs_by_folder.get((directory, folder), {})
    runs = {file: open_already.get(file) or open_run(directory, file) for file in files}
    _open_runs_by_folder[directory, folder] = runs
    return tuple(runs.values())


def open_run(directory: Path, file: RunFile) -> Run:
    """Map the run of a file, and check it."""
    (batch,) = open_batches(directory, file)
    return Run(batch)


def open_batches(directory: Path, file: RunFile) -> list[pa.RecordBatch]:
    """Map all batches of a file, and check them. A run has one batch, the file of an appended view may have several."""
    path = directory / file.path
    try:
        mapped = pa.memory_map(str(path))
    except FileNotFoundError:
        raise _damaged_error(path, "the file is missing") from None
    content = mapped.read_buffer()
    if content.size != file.bytes:
        raise _damaged_error(path, f"it has {content.size} bytes instead of {file.bytes}")
    if crc32c(memoryview(content)) != file.crc:
        raise _damaged_error(path, "its checksum is wrong")
    reader = pa.ipc.open_file(content)
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    if (rows := sum(batch.num_rows for batch in batches)) != file.rows:
        raise _damaged_error(path, f"it has {rows} rows instead of {file.rows}")
    return batches


def _damaged_error(path: Path, problem: str) -> DamagedError:
    return DamagedError(
        f"{path}: {problem}",
        hint="build everything again from the log: penstock run --rebuild; or restore a savepoint",
    )
