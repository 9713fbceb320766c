"""Rewriting a partition without some of its rows: compaction, and the removal of a key. Offsets stay as they are.

1. Roll, under the lock, so that everything so far stands in closed segments.
2. Without the lock, write new segments with the rows that stay. Appends and reads go on.
3. Under the lock, name the new segments and replace the manifest: one atomic step for the whole partition, after
   which readers take up the new segments.
4. Remove the old ones.

A failure before 3 removes the drafts; a crash leaves them to the next rewrite, which does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.files import Buffer, File, disk_errors
from penstock.log.frame import (
    DELETED_COLUMN,
    DELETES,
    NO_TIME,
    OFFSET_COLUMN,
    SPARSE,
    Header,
    Stamp,
    decode,
    encode,
    parse_header,
    place,
    row_offsets,
    stored_schema,
)
from penstock.log.index import IndexBuilder, encode_entries
from penstock.log.manifest import Manifest, Segment, segment_name
from penstock.log.reader import FrameReader, Schemas
from penstock.log.segment import FIRST_FRAME, Preface, encode_preface
from penstock.log.tail import Tail
from penstock.log.versions import Keys, KeyVersions
from penstock.log.writer import PartitionWriter

REWRITE_LOCK = "rewrite.lock"
DRAFT_SUFFIX = ".draft"
# Kept rows are collected into frames of about this many.
FRAME_ROWS = 16_384

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a rewrite did to one partition."""

    partition: int
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A frame as it stands in the log."""

    header: Header
    batch: pa.RecordBatch
    offsets: Offsets

    @property
    def deleted(self) -> Mask:
        if not self.header.flags & DELETES:
            return np.zeros(self.batch.num_rows, dtype=np.bool_)
        marks: Mask = self.batch.column(DELETED_COLUMN).to_numpy(zero_copy_only=False)
        return marks


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows of a frame stay. `joins`: whether rows that were appended at different times may share a frame.

    A frame has one append time, the last of its rows', and event times may be corrected by it. Compaction joins, since
    without it a topic of single events would stay a heap of tiny frames, and rows are missing from its past anyway.
    Erasure does not: to the rows of other keys nothing may happen.
    """

    rows: Callable[[Stored], Mask]
    joins: bool


Choose = Callable[[Iterator[Stored]], Keep]
Progress = Callable[[int], None]


def stored_frames(writer: PartitionWriter, schemas: Schemas, tail: Tail, *, start: int, until: int) -> Iterator[Stored]:
    """The frames from `start` up to `until`, as they are stored."""
    reader = FrameReader(writer.partition, start)
    try:
        while reader.next_offset < until and (frames := reader.read(tail)):
            for header, body in frames:
                if header.base_offset < until:
                    batch = decode(header, body, schemas.version(header.schema_id))
                    yield Stored(header, batch, row_offsets(header, batch))
    finally:
        reader.close()


def last_of_each_key(keys_of: Callable[[pa.RecordBatch], Keys], *, drop_deletes_before: int | None) -> Choose:
    """Compaction: keep a key's last row, and a delete marker until every group has passed it.

    `drop_deletes_before` is the offset the slowest group has come to; None when no group reads the topic.
    """

    def choose(frames: Iterator[Stored]) -> Keep:
        last = KeyVersions(rewrites=0)
        for frame in frames:
            last.store(keys_of(frame.batch), frame.offsets, next_offset=frame.header.next_offset)

        def keep(frame: Stored) -> Mask:
            newest: Mask = last.lookup(keys_of(frame.batch)) == frame.offsets
            passed = True if drop_deletes_before is None else frame.offsets < drop_deletes_before
            return newest & ~(frame.deleted & passed)

        return Keep(keep, joins=True)

    return choose


def all_but(key: pa.RecordBatch) -> Keep:
    """Erasure: keep every row but those of this key."""

    def keep(frame: Stored) -> Mask:
        others: Mask = np.zeros(frame.batch.num_rows, dtype=np.bool_)
        for name, value in zip(key.schema.names, key.columns, strict=True):
            differs = pc.not_equal(frame.batch.column(name), value[0])
            others |= differs.to_numpy(zero_copy_only=False)
        return others

    return Keep(keep, joins=False)


def rewrite(
    writer: PartitionWriter,
    schemas: Schemas,
    choose: Choose,
    *,
    segment_bytes: int,
    time_column: str | None,
    progress: Progress = lambda rows: None,
) -> Rewritten:
    """Rewrite a partition with the rows that `choose` keeps. `progress` is told of every row that was looked at."""
    partition = writer.partition
    with (
        disk_errors(partition.where),
        closing(partition.files.lock(partition.directory / REWRITE_LOCK)) as alone,
        ExitStack() as leftovers,
    ):
        alone.acquire()
        _remove_drafts(writer)
        leftovers.callback(_remove_drafts, writer)
        with writer.exclusive():
            tail = writer.roll()  # 1
            manifest = partition.manifest(tail.generation)
        start = manifest.start_offset
        everything = stored_frames(writer, schemas, tail, start=start, until=tail.end_offset)
        keep = choose(_watched(everything, progress))
        closed = stored_frames(writer, schemas, tail, start=start, until=manifest.active.base_offset)
        draft = _Draft(writer, schemas, manifest, keep, segment_bytes=segment_bytes, time_column=time_column)
        leftovers.callback(draft.close)
        for frame in _watched(closed, progress):
            draft.add(frame)  # 2
        segments = draft.finish()
        try:
            with writer.exclusive():
                _swap(writer, manifest, segments)  # 3
            _remove(writer, manifest.closed)  # 4
        except BaseException:
            writer.let_go()  # the next opening removes what is left over, be it the old segments or the new
            raise
    return Rewritten(
        partition.number,
        sum(segment.rows for segment in manifest.closed),
        sum(segment.rows for segment in segments),
        sum(segment.bytes for segment in manifest.closed),
        sum(segment.bytes for segment in segments),
    )


def _watched(frames: Iterator[Stored], progress: Progress) -> Iterator[Stored]:
    for frame in frames:
        yield frame
        progress(frame.batch.num_rows)


def _remove_drafts(writer: PartitionWriter) -> None:
    partition = writer.partition
    for name in partition.files.names(partition.directory):
        if name.endswith(DRAFT_SUFFIX):
            partition.files.remove(partition.directory / name)


def _swap(writer: PartitionWriter, rewritten: Manifest, segments: Sequence[Segment]) -> None:
    partition = writer.partition
    current = partition.manifest(None)
    replaced = {segment.name for segment in rewritten.closed}
    # Retention may have removed, and rolling added, segments since step 1.
    fresh = [segment for segment in segments if segment.end_offset > current.start_offset]
    for segment in fresh:
        for name in (segment.name, segment.index_name):
            partition.files.replace(partition.directory / (name + DRAFT_SUFFIX), partition.directory / name)
    partition.files.sync_directory(partition.directory)
    rest = tuple(segment for segment in current.segments if segment.name not in replaced)
    writer.replace_manifest(current.with_segments((*fresh, *rest), rewritten=True))


def _remove(writer: PartitionWriter, segments: Sequence[Segment]) -> None:
    """Remove files by name, without the lock: removing large files takes a while, and nobody uses these names again."""
    partition = writer.partition
    for segment in segments:
        for name in (segment.name, segment.index_name):
            partition.files.remove(partition.directory / name)


class _Draft:
    """Writes the kept rows into new segments that nobody sees yet."""

    def __init__(
        self,
        writer: PartitionWriter,
        schemas: Schemas,
        manifest: Manifest,
        keep: Keep,
        *,
        segment_bytes: int,
        time_column: str | None,
    ) -> None:
        self._partition = writer.partition
        self._keep = keep
        self._schemas = schemas
        self._segment_bytes = segment_bytes
        self._time_column = time_column
        self._manifest = manifest
        self._sources = iter(manifest.closed)
        self._source: Segment | None = next(self._sources, None)
        self._rows: list[tuple[Stored, pa.RecordBatch, Offsets]] = []
        self._row_count = 0
        self._file: File | None = None
        self._segment: Segment | None = None
        self._position = 0
        self._index: IndexBuilder | None = None
        self._entries = b""
        self._finished: list[Segment] = []

    def add(self, frame: Stored) -> None:
        kept = self._keep.rows(frame)
        self._close_if_full(frame.header.base_offset)
        if not kept.any():
            return
        if self._rows and not self._fits(frame.header):
            self._flush()
        batch = frame.batch if kept.all() else frame.batch.filter(pa.array(kept))
        self._rows.append((frame, batch, frame.offsets[kept]))
        self._row_count += batch.num_rows
        if self._row_count >= FRAME_ROWS:
            self._flush()

    def _fits(self, header: Header) -> bool:
        """Whether rows of this frame may stand in one with those that wait to be written."""
        last = self._rows[-1][0].header
        return _alike(last, header) and (self._keep.joins or last.append_time == header.append_time)

    def finish(self) -> list[Segment]:
        self._flush()
        self._source = None
        self._close_segment()
        self._partition.files.sync_directory(self._partition.directory)
        return self._finished

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _close_if_full(self, offset: int) -> None:
        """Segments end only where source segments end, so that each stands for a known range of offsets."""
        while self._source is not None and offset >= self._source.end_offset:
            self._source = next(self._sources, None)
            if self._position >= self._segment_bytes:
                self._flush()
                self._close_segment()

    def _flush(self) -> None:
        if not self._rows:
            return
        header = self._rows[-1][0].header
        offsets = np.concatenate([offsets for _, _, offsets in self._rows])
        schema = self._schemas.version(header.schema_id)
        batch = _joined([batch for _, batch, _ in self._rows], offsets, schema, header.flags)
        flags = header.flags | SPARSE
        body = encode(batch, schema_id=header.schema_id, time_column=self._time_column, flags=flags)
        buffers = place(
            body,
            base_offset=int(offsets[0]),
            last_offset=int(offsets[-1]),
            append_time=max(frame.header.append_time for frame, _, _ in self._rows),
            synced=0,
            stamp=Stamp(header.producer, header.epoch, header.sequence, header.transaction),
        )
        self._write(buffers, len(offsets))
        self._rows, self._row_count = [], 0

    def _write(self, buffers: list[bytes | pa.Buffer], rows: int) -> None:
        header = parse_header(buffers[0])
        if self._segment is None:
            self._begin(header.base_offset)
        assert self._file is not None and self._segment is not None and self._index is not None
        self._file.write_at(self._position, list[Buffer](buffers))
        entry = self._index.entry_for(self._position, header)
        self._entries += encode_entries([entry] if entry else [])
        self._position += header.length
        self._segment = replace(
            self._segment,
            rows=self._segment.rows + rows,
            append_time=max(self._segment.append_time, header.append_time),
        )

    def _begin(self, base_offset: int) -> None:
        name = segment_name(base_offset, self._manifest.generation)
        self._file = self._partition.files.open(self._partition.directory / (name + DRAFT_SUFFIX), create=True)
        self._file.truncate(0)
        preface = Preface(self._partition.topic_id, self._partition.number, base_offset)
        self._file.write_at(0, [encode_preface(preface)])
        self._position = FIRST_FRAME
        before = [segment.max_time for segment in self._manifest.closed if segment.end_offset <= base_offset]
        self._index = IndexBuilder(max_time=max(before, default=NO_TIME))
        self._entries = b""
        self._segment = Segment(name, base_offset, rewritten=True)

    def _close_segment(self) -> None:
        if self._segment is None or self._file is None:
            return
        self._file.sync()
        self._file.close()
        end_offset = self._manifest.active.base_offset if self._source is None else self._source.base_offset
        covered = [segment for segment in self._manifest.closed if segment.end_offset <= end_offset]
        finished = replace(
            self._segment,
            end_offset=end_offset,
            bytes=self._position,
            max_time=max(segment.max_time for segment in covered),
        )
        index_path = self._partition.directory / (finished.index_name + DRAFT_SUFFIX)
        index = self._partition.files.open(index_path, create=True)
        index.truncate(0)
        index.write_at(0, [self._entries])
        index.sync()
        index.close()
        self._finished.append(finished)
        self._file, self._segment, self._position = None, None, 0


def _alike(one: Header, other: Header) -> bool:
    """Frames whose rows may stand in one frame: nothing that is still of use would be lost."""
    same_writer = (one.producer, one.epoch) == (other.producer, other.epoch)
    return same_writer and one.schema_id == other.schema_id and one.flags | SPARSE == other.flags | SPARSE


def _joined(batches: list[pa.RecordBatch], offsets: Offsets, schema: pa.Schema, flags: int) -> pa.RecordBatch:
    """One batch in stored form, with the offset of every row."""
    plain = stored_schema(schema, flags & ~SPARSE)
    joined = pa.concat_batches([batch.select(plain.names) for batch in batches])  # type: ignore[attr-defined]
    columns = {name: joined.column(name) for name in plain.names} | {OFFSET_COLUMN: pa.array(offsets)}
    target = stored_schema(schema, flags | SPARSE)
    return pa.RecordBatch.from_arrays([columns[name] for name in target.names], schema=target)
