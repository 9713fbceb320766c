"""The new segments of a rewrite, while nobody sees them: kept rows in new frames, other frames as they are.

A frame is copied as it is where it is held, and where nothing of it goes and frames are not joined. All other frames
are changed: the draft tells which offsets they had, so that no hold is placed on them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.frame import (
    DELETED_COLUMN,
    DELETES,
    OFFSET_COLUMN,
    SPARSE,
    Body,
    Header,
    Stamp,
    encode,
    parse_header,
    place,
    stored_schema,
)
from penstock.log.holds import FOREVER, Held, overlapping_holds, owners
from penstock.log.index import IndexBuilder, encode_entries
from penstock.log.manifest import Manifest, Segment, segment_name
from penstock.log.partition import Partition
from penstock.log.reader import Schemas
from penstock.log.segment import FIRST_FRAME, Preface, encode_preface
from penstock.storage.files import Buffer, File
from penstock.units import NO_TIME

DRAFT_SUFFIX = ".draft"
# Kept rows are collected into frames of about this many.
FRAME_ROWS = 16_384

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stored:
    """A frame as it stands in the log."""

    header: Header
    body: pa.Buffer
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
    The transactions that rows were in are forgotten where they are joined: with newer rows of their keys missing or
    still to come, no cut in there shows what was true at a time. Erasure does not join: to the rows of other keys
    nothing may happen.

    `drops_markers`: of those rows, delete markers go nevertheless, unless a reader has not read them yet, or an older
    row has stayed that they may delete. `complete`: everything else must go, so that what is held has to be waited for;
    otherwise it stays.
    """

    rows: Callable[[Stored], Mask]
    joins: bool
    complete: bool
    drops_markers: bool


@dataclass(slots=True)
class Piece:
    """Closed segments that come one after the other, and the one that would take their place: none if no row stays."""

    sources: list[Segment] = field(default_factory=list)
    segment: Segment | None = None
    changed: list[tuple[int, int]] = field(default_factory=list)  # offsets of frames that are not as they were
    last_dropped_marker: int = -1

    @property
    def drops_markers(self) -> bool:
        return self.last_dropped_marker >= 0

    @property
    def rows_removed(self) -> int:
        return sum(source.rows for source in self.sources) - (self.segment.rows if self.segment else 0)

    def change(self, start: int, end: int) -> None:
        if self.changed and self.changed[-1][1] == start:
            start = self.changed.pop()[0]
        self.changed.append((start, end))

    def held_by(self, held: Sequence[Held]) -> tuple[Held, ...]:
        """The holds on rows that would change, and on delete markers that would go."""
        return tuple(hold for hold in held if self._is_held_by(hold))

    def _is_held_by(self, hold: Held) -> bool:
        if hold.only_markers:
            return self.last_dropped_marker >= hold.start
        return any(hold.overlaps(start, end) for start, end in self.changed)


class Draft:
    """Writes the kept rows into new segments that nobody sees yet. `held` frames are copied as they are."""

    def __init__(
        self,
        partition: Partition,
        schemas: Schemas,
        manifest: Manifest,
        keep: Keep,
        *,
        held: Sequence[Held],
        segment_bytes: int,
        time_column: str | None,
    ) -> None:
        self._partition = partition
        self._keep = keep
        self._schemas = schemas
        self._segment_bytes = segment_bytes
        self._time_column = time_column
        self._manifest = manifest
        self._held = [hold for hold in held if not hold.only_markers]
        self._readers = [hold for hold in held if hold.only_markers]
        self._markers_from = min((hold.start for hold in self._readers), default=FOREVER)
        self.held_rows = 0  # which would have gone
        self.held_by: set[str] = set()
        self.unread_markers = 0  # which would have gone
        self.unread_by: set[str] = set()
        self._sources = iter(manifest.closed)
        self._source: Segment | None = next(self._sources, None)
        self._rows: list[tuple[Stored, pa.RecordBatch, Offsets]] = []
        self._row_count = 0
        self._file: File | None = None
        self._segment: Segment | None = None
        self._position = 0
        self._index: IndexBuilder | None = None
        self._entries = b""
        self._piece = Piece()
        self.pieces: list[Piece] = []

    def add(self, frame: Stored) -> None:
        header = frame.header
        kept = self._keep.rows(frame)
        passed = self._passed_markers(frame, kept)
        kept = kept & ~passed
        self._close_if_full(header.base_offset)
        held = overlapping_holds(self._held, header.base_offset, header.next_offset)
        if held or (kept.all() and not self._keep.joins):
            self._copy(frame)
            self._note_held(held, int(np.count_nonzero(~kept)))
            return
        self._piece.change(header.base_offset, header.next_offset)
        self._note_markers(frame, kept, passed)
        if kept.any():
            self._collect(frame, kept)

    def _copy(self, frame: Stored) -> None:
        """Write a frame as it is. What its header says of other bytes of its segment no longer counts."""
        self._flush()
        header = frame.header
        body = Body(
            frame.body, header.body_crc, header.flags, header.rows, header.schema_id, header.min_time, header.max_time
        )
        buffers = place(
            body,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            append_time=header.append_time,
            synced=0,
            stamp=Stamp(header.producer, header.epoch, header.sequence, header.transaction),
        )
        self._write(buffers, header.rows)

    def _note_held(self, held: Sequence[Held], rows: int) -> None:
        if held and rows:
            self.held_rows += rows
            self.held_by.update(owners(held))

    def _passed_markers(self, frame: Stored, kept: Mask) -> Mask:
        """The delete markers that nobody needs any more."""
        markers_from = 0 if self.held_rows or not self._keep.drops_markers else self._markers_from
        passed: Mask = kept & frame.deleted & (frame.offsets < markers_from)
        return passed

    def _note_markers(self, frame: Stored, kept: Mask, passed: Mask) -> None:
        """Note which delete markers go, and which stay because of whom."""
        if not self._keep.drops_markers or not frame.header.flags & DELETES:
            return
        if passed.any():
            self._piece.last_dropped_marker = int(frame.offsets[passed][-1])
        unread = frame.offsets[frame.deleted & kept & (frame.offsets >= self._markers_from)]
        if len(unread):
            self.unread_markers += len(unread)
            self.unread_by.update(owners([hold for hold in self._readers if hold.start <= unread[-1]]))

    def _collect(self, frame: Stored, kept: Mask) -> None:
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
        alike = (last.append_time, last.transaction) == (header.append_time, header.transaction)
        return _can_join(last, header) and (self._keep.joins or alike)

    def finish(self) -> None:
        """From here on `pieces` are all closed segments of the manifest, and the new ones are on disk."""
        self._flush()
        while self._source is not None:
            self._piece.sources.append(self._source)
            self._source = next(self._sources, None)
        self._close_segment()
        self._partition.files.sync_directory(self._partition.directory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _close_if_full(self, offset: int) -> None:
        """Segments end only where source segments end, so that each stands for a known range of offsets."""
        while self._source is not None and offset >= self._source.end_offset:
            self._piece.sources.append(self._source)
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
        batch = _join_batches([batch for _, batch, _ in self._rows], offsets, schema, header.flags)
        flags = header.flags | SPARSE
        body = encode(batch, schema_id=header.schema_id, time_column=self._time_column, flags=flags)
        buffers = place(
            body,
            base_offset=int(offsets[0]),
            last_offset=int(offsets[-1]),
            append_time=max(frame.header.append_time for frame, _, _ in self._rows),
            synced=0,
            stamp=Stamp(header.producer, header.epoch, header.sequence, self._transaction_of_rows()),
        )
        self._write(buffers, len(offsets))
        self._rows, self._row_count = [], 0

    def _transaction_of_rows(self) -> int:
        """0 if the rows are of several. Of a past with rows missing nobody can see a transaction as it was."""
        transactions = {frame.header.transaction for frame, _, _ in self._rows}
        return transactions.pop() if len(transactions) == 1 else 0

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
        piece, self._piece = self._piece, Piece()
        self.pieces.append(piece)
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
        piece.segment = finished
        self._file, self._segment, self._position = None, None, 0


def _can_join(left: Header, right: Header) -> bool:
    """Frames whose rows may stand in one frame: nothing that is still of use would be lost."""
    same_writer = (left.producer, left.epoch) == (right.producer, right.epoch)
    return same_writer and left.schema_id == right.schema_id and left.flags | SPARSE == right.flags | SPARSE


def _join_batches(batches: list[pa.RecordBatch], offsets: Offsets, schema: pa.Schema, flags: int) -> pa.RecordBatch:
    """One batch in stored form, with the offset of every row."""
    plain = stored_schema(schema, flags & ~SPARSE)
    joined = pa.concat_batches([batch.select(plain.names) for batch in batches])  # type: ignore[attr-defined]
    columns = {name: joined.column(name) for name in plain.names} | {OFFSET_COLUMN: pa.array(offsets)}
    target = stored_schema(schema, flags | SPARSE)
    return pa.RecordBatch.from_arrays([columns[name] for name in target.names], schema=target)
