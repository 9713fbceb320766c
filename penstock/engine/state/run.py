"""A run: rows of one state, sorted by a 64-bit order, in an Arrow file that never changes.

Every row has an `_order` (by which it is found), an `_id` (with the order it tells rows apart: 128 bits, so that no two
keys of any real state agree in both; rows are sorted by it where orders are equal) and columns of its own. The file is
mapped, never read as a whole, except once by each process that opens it, to see that it is undamaged.
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
from penstock.engine.state.rows import hashes, taken
from penstock.engine.state.search import Hashes, by_key, in_order
from penstock.errors import DamagedError

# What this process has open, by the folder of an app and a folder of runs in it.
_opened: dict[tuple[Path, str], dict[RunFile, Run]] = {}


@dataclass(frozen=True, slots=True)
class RunFile:
    """Where a run is (relative to the app's folder) and what it must hold; what a commit remembers of it.

    From the watermark `expires` on no row of it can be reached any more; None: some rows last for ever.
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
    """A run of these rows, which may be in any order."""
    order, id_ = hashes(batch, ORDER), hashes(batch, ID)
    return Run(batch if in_order(order, id_) else taken(batch, by_key(order, id_)))


def store_run(directory: Path, folder: str, prefix: str, run: Run, expires: int | None = None) -> RunFile:
    """Write a run durably under a name that nobody else has; it begins with `prefix`."""
    return replace(store_batches(directory, folder, prefix, [run.batch]), expires=expires)


def store_batches(directory: Path, folder: str, prefix: str, batches: Iterable[pa.RecordBatch]) -> RunFile:
    """The same for batches as they come, of which there is at least one."""
    place = directory / folder
    if not place.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        for made in (place.parent, place.parent.parent):
            _sync(made)
    path = place / f"{prefix}-{secrets.token_hex(4)}.arrow"
    draft = path.with_suffix(".tmp")
    rows, remaining = 0, iter(batches)
    first = next(remaining)
    with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for batch in chain([first], remaining):
            writer.write_batch(batch)
            rows += batch.num_rows
    with pa.memory_map(str(draft)) as mapped:
        content = mapped.read_buffer()
        size, crc = content.size, crc32c(memoryview(content))
    _sync(draft)
    draft.rename(path)
    _sync(place)
    return RunFile(str(path.relative_to(directory)), rows, size, crc)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reachable(files: Sequence[RunFile], watermark: int) -> tuple[RunFile, ...]:
    """The files without those of which no row can be reached any more."""
    return tuple(file for file in files if file.expires is None or file.expires > watermark)


def open_runs(directory: Path, folder: str, files: Sequence[RunFile]) -> tuple[Run, ...]:
    """The runs of a state partition, which lie in this folder.

    They stay open until it is called again for the folder, so that a process checks each file once, and lets go of
    files that were merged into others: a file that is open takes space even when it is removed.
    """
    known = _opened.get((directory, folder), {})
    runs = {file: known.get(file) or open_run(directory, file) for file in files}
    _opened[directory, folder] = runs
    return tuple(runs.values())


def open_run(directory: Path, file: RunFile) -> Run:
    """The run of a file, mapped and checked."""
    (batch,) = open_batches(directory, file)
    return Run(batch)


def open_batches(directory: Path, file: RunFile) -> list[pa.RecordBatch]:
    """All batches of a file, mapped and checked: runs have one, what was appended as it came has several."""
    path = directory / file.path
    try:
        mapped = pa.memory_map(str(path))
    except FileNotFoundError:
        raise _damaged(path, "the file is missing") from None
    content = mapped.read_buffer()
    if content.size != file.bytes:
        raise _damaged(path, f"it has {content.size} bytes instead of {file.bytes}")
    if crc32c(memoryview(content)) != file.crc:
        raise _damaged(path, "its checksum is wrong")
    reader = pa.ipc.open_file(content)
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    if (rows := sum(batch.num_rows for batch in batches)) != file.rows:
        raise _damaged(path, f"it has {rows} rows instead of {file.rows}")
    return batches


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(
        f"{path}: {what}",
        hint="build everything again from the log: penstock run --rebuild; or restore a savepoint",
    )
