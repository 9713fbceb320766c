"""Reading: frames of one partition by offset or time, and batches of a whole topic, waiting at the end.

A reader only looks. It maps what the tail says is visible, checks every frame it returns, and keeps no state on disk.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.contracts import Batch
from penstock.errors import DamagedError, DeclarationError, RangeError
from penstock.log.frame import (
    DELETED_COLUMN,
    DELETES,
    HEADER_BYTES,
    STATE,
    VERSION_COLUMN,
    VERSIONS,
    BadFrameError,
    Header,
    body_of,
    decode,
    parse_header,
    row_offsets,
)
from penstock.log.index import (
    Entry,
    IndexBuilder,
    encode_entries,
    entry_at_offset,
    load_index,
    offset_before_append_time,
    offset_before_event_time,
)
from penstock.log.manifest import Manifest, Segment
from penstock.log.partition import Partition
from penstock.log.segment import FIRST_FRAME, check_order, later_frames, offsets_at_risk, scan
from penstock.log.tail import Tail
from penstock.schema.arrow import conform
from penstock.storage.files import File, write_durably
from penstock.storage.watch import Watch
from penstock.units import NO_TIME

# How much of a segment is mapped at a time, and so about how much one poll returns per partition.
READ_BYTES = 8 * 1024 * 1024
UNDECIDED_SECONDS = 0.02


class Schemas(Protocol):
    """The schemas of a topic: the newest, and any older one by its id."""

    @property
    def schema(self) -> pa.Schema: ...

    def version(self, schema_id: int) -> pa.Schema: ...


class FrameReader:
    """Walks the frames of one partition from an offset on, through rolls and rewrites."""

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self.next_offset = offset
        self._manifest: Manifest | None = None
        self._segment = 0
        self._position = 0
        self._expected = 0  # the offset the frame at that position should begin with
        self._gaps = False
        self._file: File | None = None

    def read(self, tail: Tail, *, max_bytes: int = READ_BYTES) -> list[tuple[Header, pa.Buffer]]:
        """The next frames up to the end that `tail` tells: at least one, about `max_bytes`; none at the end."""
        max_bytes = max(max_bytes, HEADER_BYTES)
        while self.next_offset < tail.end_offset:
            self._follow(tail)
            limit = self._limit(tail)
            if self._position < limit:
                frames = self._frames(limit, max_bytes)
                if frames:
                    return frames
            elif not self._advance():
                return []
        return []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _follow(self, tail: Tail) -> None:
        manifest = self._partition.manifest(tail.generation)
        if self._file is None or self._manifest is None or self._manifest.generation != manifest.generation:
            self._unless_rewritten(manifest, lambda: self._locate(manifest))

    def _advance(self) -> bool:
        manifest = self._manifest
        assert manifest is not None
        if self._segment + 1 >= len(manifest.segments):
            return False
        self._unless_rewritten(manifest, lambda: self._open(manifest, self._segment + 1))
        return True

    def _unless_rewritten(self, manifest: Manifest, step: Callable[[], None]) -> None:
        """Take a step that opens a segment. One that is missing may have been rewritten since we read the manifest."""
        try:
            step()
        except DamagedError:
            self._partition.forget_manifest()
            latest = self._partition.manifest()
            if latest.generation == manifest.generation:
                raise
            self._locate(latest)

    def _locate(self, manifest: Manifest) -> None:
        if self.next_offset < manifest.start_offset:
            raise RangeError(
                f"{self._partition.where}: offset {self.next_offset} is gone; "
                f"what is kept begins at offset {manifest.start_offset}",
                hint=f"read from offset {manifest.start_offset}, or raise the topic's retention",
            )
        self._open(manifest, manifest.segment_of(self.next_offset))
        self._position, self._expected = self._nearest_frame(self.next_offset)

    def _open(self, manifest: Manifest, segment: int) -> None:
        self.close()
        self._file = self._partition.open_segment(manifest.segments[segment])
        self._manifest, self._segment, self._position = manifest, segment, FIRST_FRAME
        opened = manifest.segments[segment]
        self._expected, self._gaps = opened.base_offset, opened.rewritten
        # Offsets before this segment that were not met are of rows that were removed.
        self.next_offset = max(self.next_offset, opened.base_offset)

    def _limit(self, tail: Tail) -> int:
        assert self._manifest is not None
        segment = self._manifest.segments[self._segment]
        if self._segment < len(self._manifest.segments) - 1:
            return segment.bytes
        return tail.end_position if tail.active_base == segment.base_offset else 0

    def _nearest_frame(self, offset: int) -> tuple[int, int]:
        """Position and offset of the last indexed frame at or before `offset`.

        The index is only a hint: it is believed if a frame with that offset really stands there.
        """
        assert self._manifest is not None and self._file is not None
        segment = self._manifest.segments[self._segment]
        start = FIRST_FRAME, segment.base_offset
        active = self._segment == len(self._manifest.segments) - 1
        entry = entry_at_offset(index_of(self._partition, segment, self._file, active=active), offset)
        if entry is None or entry.position + HEADER_BYTES > self._file.size():
            return start
        try:
            header = parse_header(self._file.view(entry.position, HEADER_BYTES))
        except BadFrameError:
            return start
        return (entry.position, entry.base_offset) if header.base_offset == entry.base_offset else start

    def _frames(self, limit: int, max_bytes: int) -> list[tuple[Header, pa.Buffer]]:
        assert self._file is not None
        if self._file.size() < limit:
            raise self._damage(f"the file has {self._file.size()} bytes instead of {limit}")
        stop = min(limit, self._position + max_bytes)
        data = self._file.view(self._position, stop - self._position)
        start = self._position
        frames: list[tuple[Header, pa.Buffer]] = []
        while self._position < stop:
            if self._position + HEADER_BYTES > stop and stop < limit:
                break
            try:
                header = parse_header(data, self._position - start)
                check_order(header, self._expected, gaps=self._gaps)
                if self._position + header.length > stop and stop < limit:
                    if frames:
                        break
                    stop = min(limit, self._position + header.length)
                    data, start = self._file.view(self._position, stop - self._position), self._position
                if header.last_offset >= self.next_offset and not header.flags & STATE:
                    frames.append((header, body_of(header, data, self._position - start)))
                    self.next_offset = header.next_offset
            except BadFrameError as bad:
                # What is good comes first; the next read begins at the bad frame.
                if frames or self._skip_damage(limit):
                    break
                raise self._damage(str(bad)) from None
            self._position += header.length
            self._expected = header.next_offset
        return frames

    def _skip_damage(self, limit: int) -> bool:
        """On the way to an offset, step over damaged frames that end before it. Their rows were not asked for."""
        assert self._file is not None
        if self._expected >= self.next_offset:
            return False
        rest = self._file.view(self._position, limit - self._position)
        for position, header in later_frames(rest, after=self._position, data_start=self._position):
            if self._expected < header.base_offset <= self.next_offset:
                self._position, self._expected = position, header.base_offset
                return True
        return False

    def _damage(self, reason: str) -> DamagedError:
        assert self._manifest is not None and self._file is not None
        segment = self._manifest.segments[self._segment]
        return damage_at(
            self._partition, segment, self._file, position=self._position, offset=self.next_offset, reason=reason
        )


def index_of(partition: Partition, segment: Segment, file: File, *, active: bool) -> list[Entry]:
    """The index of a segment. A closed segment whose index is missing or damaged gets a new one."""
    path = partition.directory / segment.index_name
    entries = load_index(partition.files, path)
    if entries is not None or active:
        return entries or []
    data = file.view(0, min(segment.bytes, file.size()))
    frames = scan(data, start=FIRST_FRAME, next_offset=segment.base_offset, gaps=segment.rewritten, bodies=False).frames
    entries = IndexBuilder(max_time=_max_time_before(partition, segment)).entries_for(frames)
    # A reader that may not write here goes without.
    with suppress(OSError):
        write_durably(partition.files, path, encode_entries(entries))
    return entries


def _max_time_before(partition: Partition, segment: Segment) -> int:
    earlier = [closed.max_time for closed in partition.manifest().closed if closed.end_offset <= segment.base_offset]
    return max(earlier, default=NO_TIME)


def damage_at(
    partition: Partition, segment: Segment, file: File, *, position: int, offset: int, reason: str
) -> DamagedError:
    """The error that tells what is damaged, and where reading can go on."""
    rest = file.view(position, max(0, file.size() - position))
    following = next(later_frames(rest, after=position, data_start=position), None)
    end = following[1].base_offset if following else segment.end_offset
    return DamagedError(
        f"{partition.where}: segment {segment.name} is damaged at byte {position}: {reason}; "
        f"{offsets_at_risk(offset, end)}",
        hint="restore the segment from a copy"
        + (f", or leave those rows out by reading from offset {end}" if end > offset else ""),
    )


def read_batches(
    partition: Partition,
    schemas: Schemas,
    frames: Sequence[tuple[Header, pa.Buffer]],
    *,
    start_offset: int = 0,
    columns: Sequence[str] | None = None,
) -> Iterator[Batch]:
    """Decode frames into batches with the newest schema, leaving out rows before `start_offset`."""
    for header, _ in frames:
        schemas.version(header.schema_id)  # another process may have added it: then it is the newest
    newest = schemas.schema
    names = newest.names if columns is None else columns
    # Nullable, as they are stored: a delete marker has only its key.
    wanted = pa.schema([newest.field(name).with_nullable(True) for name in names])
    for header, body in frames:
        stored = decode(header, body, schemas.version(header.schema_id))
        batch = Batch(
            partition.number,
            conform(stored.select([name for name in wanted.names if name in stored.schema.names]), wanted),
            row_offsets(header, stored),
            stored.column(DELETED_COLUMN) if header.flags & DELETES else None,
            stored.column(VERSION_COLUMN) if header.flags & VERSIONS else None,
            header.append_time,
            header.producer,
        )
        if header.base_offset < start_offset:
            batch = batch.slice(int(np.searchsorted(batch.offsets, start_offset)))
        if len(batch):
            yield batch


def offset_at_time(partition: Partition, schemas: Schemas, time_column: str | None, time: int) -> int:
    """The first offset from which on an event of this time or later may be found; the end when there is none.

    `time` is event time where the topic has such a column, and append time otherwise.
    """
    tail = partition.tail()
    manifest = partition.manifest(tail.generation)
    by_event = time_column is not None
    for segment in manifest.segments:
        closed = segment is not manifest.active
        newest = segment.max_time if by_event else segment.append_time
        if closed and newest < time:
            continue
        file = partition.open_segment(segment)
        entries = index_of(partition, segment, file, active=not closed)
        file.close()
        before = (offset_before_event_time if by_event else offset_before_append_time)(entries, time)
        reader = FrameReader(partition, max(before or segment.base_offset, manifest.start_offset))
        try:
            while frames := reader.read(tail):
                for header, body in frames:
                    if (header.max_time if by_event else header.append_time) >= time:
                        return _first_row(header, body, schemas, time_column, time)
        finally:
            reader.close()
    return tail.end_offset


def _first_row(header: Header, body: pa.Buffer, schemas: Schemas, time_column: str | None, time: int) -> int:
    if time_column is None:
        return header.base_offset
    stored = decode(header, body, schemas.version(header.schema_id))
    times = stored.column(time_column).cast(pa.int64()).fill_null(NO_TIME).to_numpy()
    return int(row_offsets(header, stored)[int(np.argmax(times >= time))])


class Reader:
    """Reads some partitions of a topic, each from its own offset, and waits at the end for more."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        schemas: Schemas,
        positions: Mapping[int, int],
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._partitions = dict(partitions)
        self._schemas = schemas
        self._columns = columns
        self._readers = {number: FrameReader(self._partitions[number], positions[number]) for number in positions}
        self._turn = 0
        self._watch: Watch | None = None
        # Whether the last look met a transaction that was not decided yet. Should its process die right after the
        # commit, nobody will write that tail again, so whoever waits must look again before long.
        self.undecided = False
        self._closed = False

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def positions(self) -> dict[int, int]:
        """For every partition the offset of the next row this reader will return."""
        return {number: reader.next_offset for number, reader in self._readers.items()}

    def poll(self, timeout: float | None = 0.0, *, max_bytes: int = READ_BYTES) -> list[Batch]:
        """The next batches, partitions taking turns; waits up to `timeout` seconds (None: for ever) for the first."""
        if self._closed:
            raise DeclarationError("reader: it is closed", hint="make another one with topic.reader()")
        deadline = math.inf if timeout is None else clock.monotonic() + timeout
        while True:
            batches = self._look(max_bytes)
            left = deadline - clock.monotonic()
            if batches or left <= 0:
                return batches
            if self._watch is None:
                # Watch first and look again, or an append between the two would go unnoticed.
                self._watch = Watch([self._partitions[number].tail_file.path for number in self._readers])
            else:
                self._watch.wait(min(left, UNDECIDED_SECONDS) if self.undecided else left)

    def close(self) -> None:
        self._closed = True
        for reader in self._readers.values():
            reader.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _look(self, max_bytes: int) -> list[Batch]:
        numbers = list(self._readers)
        self.undecided = False
        for step in range(len(numbers)):
            number = numbers[(self._turn + step) % len(numbers)]
            partition, reader = self._partitions[number], self._readers[number]
            start = reader.next_offset
            try:
                tail = partition.tail()
                self.undecided |= tail.pending_transaction != 0
                frames = reader.read(tail, max_bytes=max_bytes)
            except DamagedError:
                self._turn += step + 1  # the others get their turn, should the caller go on
                raise
            batches = list(read_batches(partition, self._schemas, frames, start_offset=start, columns=self._columns))
            if batches:
                self._turn += step + 1
                return batches
        return []
