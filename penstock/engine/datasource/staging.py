"""The way of rows from tasks into a transaction: encoded frames in files under `<log>/staging`.

A task encodes its rows as frames that only lack their offsets; the driver maps them and hands them on. A staging folder
is made by the driver and moved away by it, and tasks never make one: a task that outlives its query finds it gone.
Nothing in it needs to survive a crash: the commit that needs it comes in the same run, and checks every byte.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from penstock.errors import DamagedError, UnavailableError
from penstock.log import Topic
from penstock.log.files import Disk
from penstock.log.frame import BadFrameError, Body, body_of, decode, encode, parse_header, place
from penstock.log.pending_write import Request
from penstock.log.writer import COALESCE_ROWS

STAGING_DIRECTORY = "staging"
BATCHES = "batches"
STREAMS = "streams"
GONE = "gone"
# Folders of writes whose driver died; no write takes that long without a new file.
FORGOTTEN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged: a file, and the partition and position of each frame in it."""

    path: str
    frames: tuple[tuple[int, int], ...]


class StagedFile:
    """The file of one task. Use `staged_file`, which removes it if the task fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = Disk().open(path, create=True)
        self._frames: list[tuple[int, int]] = []
        self._end = 0

    def add(self, partition: int, body: Body) -> None:
        self._file.write_at(self._end, place(body, base_offset=0, append_time=0, synced=0))
        self._frames.append((partition, self._end))
        self._end += body.length

    def staged(self) -> Staged:
        """Where everything is, sorted by partition; in each, frames keep their order."""
        return Staged(str(self.path), tuple(sorted(self._frames)))

    def close(self) -> None:
        self._file.close()


@contextmanager
def staged_file(folder: str) -> Iterator[StagedFile]:
    path = Path(folder) / f"{uuid.uuid4().hex}.frames"
    try:
        file = StagedFile(path)
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
    if request.body is not None:
        return request.body
    return encode(request.batch, schema_id=request.schema_id, time_column=topic.settings.time, flags=request.flags)


def staged_requests(topic: Topic, messages: Iterable[Staged]) -> Iterator[tuple[int, Request]]:
    """The frames of all tasks as requests, with their partitions, task by task."""
    for message in messages:
        if not message.frames:
            continue
        file = Disk().open(Path(message.path))
        try:
            data = file.view(0, file.size())
        finally:
            file.close()
        for partition, position in message.frames:
            yield partition, _request(topic, data, position, message.path)


def _request(topic: Topic, data: pa.Buffer, position: int, path: str) -> Request:
    try:
        header = parse_header(data, position)
        buffer = body_of(header, data, position)
    except BadFrameError as bad:
        raise DamagedError(f"{path}: staged rows are damaged at byte {position}: {bad}", hint="write again") from None
    batch = decode(header, buffer, topic.version(header.schema_id))
    request = Request(batch, header.schema_id, header.flags)
    # Small frames share one, and versions are counted under the lock: both are encoded again, there.
    if header.rows > COALESCE_ROWS and not topic.settings.versioned:
        request.body = Body(
            buffer, header.body_crc, header.flags, header.rows, header.schema_id, header.min_time, header.max_time
        )
    return request


# -- folders ----------------------------------------------------------------------------------------------------------


def new_folder(log: str, *under: str) -> str:
    """A new, empty folder for the tasks of one write; what others forgot long ago goes first."""
    staging = Path(log) / STAGING_DIRECTORY
    for forgotten in _forgotten(staging):
        remove_folder(log, forgotten)
    folder = staging.joinpath(*under, uuid.uuid4().hex)
    folder.mkdir(parents=True)
    return str(folder)


def remove_folder(log: str, folder: str | Path) -> None:
    """Move a folder out of the reach of its tasks, then remove it with all that is in it."""
    gone = Path(log) / STAGING_DIRECTORY / f"{GONE}-{uuid.uuid4().hex}"
    try:
        os.rename(folder, gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def stream_folder(log: str, producer: str) -> str:
    return str(Path(log) / STAGING_DIRECTORY / STREAMS / producer)


def _forgotten(staging: Path) -> list[Path]:
    folders = [*staging.glob(f"{BATCHES}/*"), *staging.glob(f"{STREAMS}/*/*"), *staging.glob(f"{GONE}-*")]
    return [folder for folder in folders if time.time() - _changed(folder) > FORGOTTEN_SECONDS]


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()
