"""The way of rows from several processes into one transaction: encoded frames in files under `<log>/staging`.

1. Whoever coordinates the write begins a `Staging`, which is plain data, and gives it to the processes that have rows.
2. Each of them encodes its rows as frames that only lack their offsets (`Staging.stage`).
3. The coordinator commits the frames of all of them (`Log.commit_staged`), and removes the staging.

A staging folder is made and moved away by the coordinator, never made by the others: a process that outlives its write
finds it gone. Nothing in it needs to survive a crash: the commit that needs it comes in the same run, and checks every
byte.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import DamagedError, UnavailableError
from penstock.log.frame import BadFrameError, Body, body_of, decode, encode, parse_header, place
from penstock.log.intake import Marks
from penstock.log.pending_write import Request
from penstock.log.topic import Topic
from penstock.log.writer import COALESCE_ROWS
from penstock.storage.files import Disk

STAGING_DIRECTORY = "staging"
BATCHES = "batches"
STREAMS = "streams"
GONE = "gone"
# Folders of writes whose coordinator died; no write takes that long without a new file.
FORGOTTEN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What one process has staged: a file, and the partition and position of each frame in it."""

    path: str
    frames: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Staging:
    """Where the rows of one write are staged. `producer` is set for the writes of a stream, which is one producer."""

    log: str
    folder: str
    producer: str | None = None

    @classmethod
    def begin(cls, log: Path, *, producer: str | None = None) -> Staging:
        """Make a new, empty folder; what others forgot long ago is removed first."""
        staging = log / STAGING_DIRECTORY
        for forgotten in _forgotten_folders(staging):
            _remove_folder(log, forgotten)
        under = (BATCHES,) if producer is None else (STREAMS, producer)
        folder = staging.joinpath(*under, uuid.uuid4().hex)
        folder.mkdir(parents=True)
        return cls(str(log), str(folder), producer)

    def stage(self, topic: Topic, chunks: Iterable[tuple[pa.Table, Marks | None]], *, turn: int = 0) -> StagedRows:
        """Check and encode rows, and write them to a file of the folder. Marks say which rows delete their key.

        Without a key all rows of a chunk go to one partition, beginning with number `turn`.
        """
        with _open_staged_file(self.folder) as file:
            for number, (rows, marks) in enumerate(chunks, start=turn):
                partition = None if topic.settings.key else number % topic.settings.partitions
                for target, request in topic.appender.requests(rows, deleted=marks, partition=partition).items():
                    file.add(target, body_for(topic, request))
            return file.staged_rows()

    def remove(self) -> None:
        """Remove the folder. Of a stream, those of all its writes: one at a time is written."""
        stream = self.producer and Path(self.log) / STAGING_DIRECTORY / STREAMS / self.producer
        _remove_folder(Path(self.log), stream or Path(self.folder))


class _StagedFile:
    """The file of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = Disk().open(path, create=True)
        self._frames: list[tuple[int, int]] = []
        self._end = 0

    def add(self, partition: int, body: Body) -> None:
        self._file.write_at(self._end, place(body, base_offset=0, append_time=0, synced=0))
        self._frames.append((partition, self._end))
        self._end += body.length

    def staged_rows(self) -> StagedRows:
        """Where everything is, sorted by partition; in each, frames keep their order."""
        return StagedRows(str(self._path), tuple(sorted(self._frames)))

    def close(self) -> None:
        self._file.close()


@contextmanager
def _open_staged_file(folder: str) -> Iterator[_StagedFile]:
    """A new file of the folder, which is removed if the block fails."""
    path = Path(folder) / f"{uuid.uuid4().hex}.frames"
    try:
        file = _StagedFile(path)
    except FileNotFoundError:
        raise UnavailableError(f"{folder}: the write that this task belongs to has ended") from None
    try:
        yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        file.close()


def body_for(topic: Topic, request: Request) -> Body:
    """The rows of a request as a frame's body."""
    if request.body is not None:
        return request.body
    return encode(request.batch, schema_id=request.schema_id, time_column=topic.settings.time, flags=request.flags)


# -- committing -------------------------------------------------------------------------------------------------------


def staged_requests(topic: Topic, staged: Sequence[StagedRows]) -> Iterator[tuple[int, Request]]:
    """The frames of all processes as requests, with their partitions, one process after the other."""
    for rows in staged:
        if not rows.frames:
            continue
        file = Disk().open(Path(rows.path))
        try:
            data = file.view(0, file.size())
        finally:
            file.close()
        for partition, position in rows.frames:
            yield partition, staged_request(topic, data, position, rows.path)


def staged_request(topic: Topic, data: pa.Buffer, position: int, path: str) -> Request:
    """The frame at `position`, checked, as a request."""
    try:
        header = parse_header(data, position)
        buffer = body_of(header, data, position)
    except BadFrameError as bad:
        raise DamagedError(f"{path}: staged rows are damaged at byte {position}: {bad}", hint="write again") from None
    batch = decode(header, buffer, topic.files.version(header.schema_id))
    request = Request(batch, header.schema_id, header.flags)
    # Small frames share one, and versions are counted under the lock: both are encoded again, there.
    if header.rows > COALESCE_ROWS and not topic.settings.versioned:
        request.body = Body(
            buffer, header.body_crc, header.flags, header.rows, header.schema_id, header.min_time, header.max_time
        )
    return request


# -- folders ----------------------------------------------------------------------------------------------------------


def _remove_folder(log: Path, folder: Path) -> None:
    """Move a folder out of the reach of its tasks, then remove it with all that is in it."""
    gone = log / STAGING_DIRECTORY / f"{GONE}-{uuid.uuid4().hex}"
    try:
        os.rename(folder, gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def _forgotten_folders(staging: Path) -> list[Path]:
    folders = [*staging.glob(f"{BATCHES}/*"), *staging.glob(f"{STREAMS}/*/*"), *staging.glob(f"{GONE}-*")]
    return [folder for folder in folders if time.time() - _changed_at(folder) > FORGOTTEN_SECONDS]


def _changed_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()
