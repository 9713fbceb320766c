"""Rows of one transaction that wait for its commit, in memory while they are few and in a file when they are many.

The file is below `<log>/staging`, on the log's own disk, and has no name: it is removed as soon as it is open, so it
goes with its process. Its frames lack only their offsets; the commit reads them one at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.log.frame import HEADER_BYTES, parse_header, place
from penstock.log.pending_write import Request
from penstock.log.staging import STAGING_DIRECTORY, body_for, staged_request
from penstock.log.topic import Topic
from penstock.storage.files import Buffer, Disk, File, disk_errors

# What is kept in memory: more goes to the file.
MOST_WAITING_BYTES = 32 * 1024 * 1024
# Rows that were set aside bit by bit are joined into frames of at most so many, and so many bytes.
FRAME_ROWS = 16_384
FRAME_BYTES = 4 * 1024 * 1024
SUFFIX = ".aside"

Addressed = tuple[Topic, int, Request]
"""Checked rows with their topic and partition."""


class SetAside:
    """Rows of one transaction in their order, for one thread at a time."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._folder = log / STAGING_DIRECTORY
        self._remove_forgotten()
        self._waiting: list[Addressed] = []
        self._waiting_bytes = 0
        self._topics: dict[tuple[str, int], Topic] = {}
        self._file: File | None = None
        self._end = 0
        self._frames: dict[tuple[str, int], list[int]] = {}  # their positions in the file

    def add(self, rows: Sequence[Addressed]) -> None:
        """Set rows aside. After an UnavailableError, such as of a full disk, they are not, but the earlier ones are."""
        size = sum(_size(request) for _, _, request in rows)
        if self._waiting_bytes + size > MOST_WAITING_BYTES:
            self._write([*self._waiting, *rows])
            self._waiting, self._waiting_bytes = [], 0
        else:
            self._waiting += rows
            self._waiting_bytes += size
        self._topics.update({(topic.name, number): topic for topic, number, _ in rows})

    def partitions(self) -> list[tuple[Topic, int]]:
        """Where there are rows."""
        return [(topic, number) for (_, number), topic in self._topics.items()]

    def requests(self, topic: str, number: int) -> Iterator[Request]:
        """The rows of one partition. Each request is read when it is asked for, and the caller need not keep it."""
        for position in self._frames.get((topic, number), ()):
            yield self._read(self._topics[topic, number], position)
        waiting = [request for at, part, request in self._waiting if (at.name, part) == (topic, number)]
        yield from _join_small(waiting)

    def discard(self) -> None:
        """Forget all rows, and give back the space."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._waiting, self._waiting_bytes, self._end = [], 0, 0
        self._topics, self._frames = {}, {}

    # -- the file -----------------------------------------------------------------------------------------------------

    def _write(self, rows: Iterable[Addressed]) -> None:
        """Write rows behind what the file has. Should that fail, it still has just what it had."""
        by_partition: dict[tuple[str, int], tuple[Topic, list[Request]]] = {}
        for topic, number, request in rows:
            by_partition.setdefault((topic.name, number), (topic, []))[1].append(request)
        end, positions = self._end, dict[tuple[str, int], list[int]]()
        with disk_errors(f"{self._log}: rows that are set aside"):
            file = self._opened_file()
            for partition, (topic, requests) in by_partition.items():
                for request in _join_small(requests):
                    body = body_for(topic, request)
                    file.write_at(end, list[Buffer](place(body, base_offset=0, append_time=0, synced=0)))
                    positions.setdefault(partition, []).append(end)
                    end += body.length
        self._end = end
        for partition, found in positions.items():
            self._frames.setdefault(partition, []).extend(found)

    def _opened_file(self) -> File:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{uuid.uuid4().hex}{SUFFIX}"
            self._file = Disk().open(path, create=True)
            path.unlink(missing_ok=True)
        return self._file

    def _remove_forgotten(self) -> None:
        """A file that has a name is of a process that was killed before it removed it, or that is about to do so."""
        with disk_errors(str(self._folder)):
            for forgotten in self._folder.glob(f"*{SUFFIX}"):
                forgotten.unlink(missing_ok=True)

    def _read(self, topic: Topic, position: int) -> Request:
        assert self._file is not None
        length = parse_header(self._file.view(position, HEADER_BYTES)).length
        return staged_request(topic, self._file.view(position, length), 0, f"{self._log}: rows that were set aside")


def _size(request: Request) -> int:
    return request.body.length if request.body else request.batch.nbytes


def _join_small(requests: Sequence[Request]) -> Iterator[Request]:
    """The same rows in fewer requests, where neighbours are small and alike."""
    sharing: list[Request] = []
    rows = size = 0
    for request in requests:
        rows += request.batch.num_rows
        size += request.batch.nbytes
        fits = rows <= FRAME_ROWS and size <= FRAME_BYTES
        if sharing and not (fits and request.can_share_a_frame(sharing[0])):
            yield _joined(sharing)
            sharing, rows, size = [], request.batch.num_rows, request.batch.nbytes
        sharing.append(request)
    if sharing:
        yield _joined(sharing)


def _joined(requests: Sequence[Request]) -> Request:
    if len(requests) == 1:
        return requests[0]
    first = requests[0]
    batch = pa.concat_batches([request.batch for request in requests])  # type: ignore[attr-defined]
    return Request(batch, first.schema_id, first.flags, first.stamp)
