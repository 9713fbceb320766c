"""Rewriting a partition without some of its rows: compaction, and the removal of a key. Offsets stay as they are.

1. Roll, under the lock, so that everything so far is in closed segments.
2. Without the lock, write new segments with the rows that stay. Appends and reads continue.
3. Under the lock, and with holds fixed, look whether a row that would change is held, or a delete marker that would go
   is needed by a reader. If so, let go and look again. If it stays so, an erasure is refused, and a compaction is
   drafted again with what is held left as it is. An erasure does not ask for readers: it removes markers too.
4. Name the new segments and replace the manifest: one atomic step for the whole partition, after which readers take up
   the new segments.
5. Remove the old ones.

A failure before 4 removes the drafts; a crash leaves them to the next rewrite, which does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UnavailableError
from penstock.log.draft import DRAFT_SUFFIX, Draft, Keep, Mask, Piece, Stored
from penstock.log.frame import decode, row_offsets
from penstock.log.holds import Held, owners
from penstock.log.manifest import Manifest, Segment
from penstock.log.reader import FrameReader, Schemas
from penstock.log.tail import Tail
from penstock.log.versions import Keys, KeyVersions
from penstock.log.writer import PartitionWriter
from penstock.storage.files import disk_errors

REWRITE_LOCK = "rewrite.lock"
# How long a rewrite waits for rows that somebody holds: an erasure must be complete, a compaction need not.
ERASE_WAIT_SECONDS = 30.0
COMPACT_WAIT_SECONDS = 2.0
HOLD_LOOK_SECONDS = 0.02
# Where a hold is placed on rows while they are drafted, and stays, they are drafted again, at most so often in all.
MOST_DRAFTS = 3


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a rewrite did to one partition. `held_rows` stayed only because of what `held_by` hold.

    `unread_markers` are delete markers that stayed only because `unread_by` have not read them yet.
    """

    partition: int
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int
    held_rows: int = 0
    held_by: tuple[str, ...] = ()
    unread_markers: int = 0
    unread_by: tuple[str, ...] = ()


Choose = Callable[[Iterator[Stored]], Keep]
RowFilter = Callable[[pa.RecordBatch], Mask]
"""Which rows of a batch are meant."""
Progress = Callable[[int], None]


def stored_frames(writer: PartitionWriter, schemas: Schemas, tail: Tail, *, start: int, until: int) -> Iterator[Stored]:
    """The frames from `start` up to `until`, as they are stored."""
    reader = FrameReader(writer.partition, start)
    try:
        while reader.next_offset < until and (frames := reader.read(tail)):
            for header, body in frames:
                if header.base_offset < until:
                    batch = decode(header, body, schemas.version(header.schema_id))
                    yield Stored(header, body, batch, row_offsets(header, batch))
    finally:
        reader.close()


def last_of_each_key(keys_of: Callable[[pa.RecordBatch], Keys], *, drops_markers: bool) -> Choose:
    """Compaction: keep a key's last row; a delete marker for ever, or until every reader has passed it."""

    def choose(frames: Iterator[Stored]) -> Keep:
        last = KeyVersions(rewrites=0)
        for frame in frames:
            last.store(keys_of(frame.batch), frame.offsets, next_offset=frame.header.next_offset)

        def keep(frame: Stored) -> Mask:
            newest: Mask = last.lookup(keys_of(frame.batch)) == frame.offsets
            return newest

        return Keep(keep, joins=True, complete=False, drops_markers=drops_markers)

    return choose


def all_but(key: pa.RecordBatch) -> Keep:
    """Erasure: keep every row but those of this key."""
    return all_except(lambda batch: rows_with(batch, key))


def all_except(matches: RowFilter) -> Keep:
    """Erasure: keep every row but those that match."""
    return Keep(lambda frame: ~matches(frame.batch), joins=False, complete=True, drops_markers=False)


def rows_with(batch: pa.RecordBatch, values: pa.RecordBatch) -> Mask:
    """The rows that have these values, of which there is one row."""
    matching: Mask = np.ones(batch.num_rows, dtype=np.bool_)
    for name, value in zip(values.schema.names, values.columns, strict=True):
        equal: pa.BooleanArray = pc.equal(batch.column(name), value[0])
        matching &= equal.fill_null(False).to_numpy(zero_copy_only=False)
    return matching


def rewrite(
    writer: PartitionWriter,
    schemas: Schemas,
    choose: Choose,
    *,
    segment_bytes: int,
    time_column: str | None,
    progress: Progress = lambda rows: None,
    wait: float = COMPACT_WAIT_SECONDS,
) -> Rewritten:
    """Rewrite a partition with the rows that `choose` keeps. `progress` is told of every row that was looked at.

    `wait` is how many seconds to wait for rows that somebody holds.
    """
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
        everything = stored_frames(writer, schemas, tail, start=manifest.start_offset, until=tail.end_offset)
        keep = choose(_report_progress(everything, progress))
        source = _Source(writer, schemas, tail, manifest, segment_bytes, time_column)
        try:
            draft, swap = _draft_and_swap(source, keep, progress, wait=wait)  # 2, 3, 4
            _remove(writer, [segment for piece in swap.pieces for segment in piece.sources])  # 5
        except BaseException:
            writer.release_files()  # the next opening removes what is left over, be it the old segments or the new
            raise
    return _describe_rewrite(partition.number, draft, swap)


@dataclass(frozen=True, slots=True)
class _Source:
    """The closed segments that are rewritten."""

    writer: PartitionWriter
    schemas: Schemas
    tail: Tail
    manifest: Manifest
    segment_bytes: int
    time_column: str | None

    def draft(self, keep: Keep, progress: Progress) -> Draft:
        """Step 2. What is held now is copied as it is, unless it must go and will be waited for."""
        _remove_drafts(self.writer)
        with self.writer.partition.held(markers=keep.drops_markers) as held:
            pass
        draft = Draft(
            self.writer.partition,
            self.schemas,
            self.manifest,
            keep,
            held=() if keep.complete else held,
            segment_bytes=self.segment_bytes,
            time_column=self.time_column,
        )
        start, until = self.manifest.start_offset, self.manifest.active.base_offset
        try:
            closed = stored_frames(self.writer, self.schemas, self.tail, start=start, until=until)
            for frame in _report_progress(closed, progress):
                draft.add(frame)
            draft.finish()
        except BaseException:
            draft.close()
            raise
        return draft


@dataclass(frozen=True, slots=True)
class _Swap:
    """The pieces of a draft that were put in place, and the holds because of which others were not."""

    pieces: Sequence[Piece]
    held: tuple[Held, ...]


def _draft_and_swap(source: _Source, keep: Keep, progress: Progress, *, wait: float) -> tuple[Draft, _Swap]:
    for attempt in count(1):
        with closing(source.draft(keep, progress)) as draft:
            swap = _swap_when_free(source.writer, draft, keep, wait=wait, last=attempt >= MOST_DRAFTS)
            if swap is not None:
                return draft, swap
    raise AssertionError


def _describe_rewrite(partition: int, draft: Draft, swap: _Swap) -> Rewritten:
    skipped = [piece for piece in draft.pieces if not any(piece is swapped for swapped in swap.pieces)]
    before = [source for piece in draft.pieces for source in piece.sources]
    after = [piece.segment for piece in swap.pieces if piece.segment]
    after += [source for piece in skipped for source in piece.sources]
    return Rewritten(
        partition,
        sum(segment.rows for segment in before),
        sum(segment.rows for segment in after),
        sum(segment.bytes for segment in before),
        sum(segment.bytes for segment in after),
        draft.held_rows + sum(piece.rows_removed for piece in skipped),
        tuple(sorted(draft.held_by | set(owners(swap.held)))),
        draft.unread_markers,
        tuple(sorted(draft.unread_by)),
    )


def _report_progress(frames: Iterator[Stored], progress: Progress) -> Iterator[Stored]:
    for frame in frames:
        yield frame
        progress(frame.batch.num_rows)


def _remove_drafts(writer: PartitionWriter) -> None:
    partition = writer.partition
    for name in partition.files.names(partition.directory):
        if name.endswith(DRAFT_SUFFIX):
            partition.files.remove(partition.directory / name)


def _swap_when_free(writer: PartitionWriter, draft: Draft, keep: Keep, *, wait: float, last: bool) -> _Swap | None:
    """Steps 3 and 4. None: a row that the draft changes is held, and has been for long; draft it again.

    After the `last` draft, the pieces without such rows are put in place, and the others stay as they are.
    """
    deadline = time.monotonic() + wait
    while True:
        with writer.exclusive(), writer.partition.held(markers=keep.drops_markers) as held:
            blocking = tuple(dict.fromkeys(hold for piece in draft.pieces for hold in piece.held_by(held)))
            late = time.monotonic() >= deadline
            if not blocking or (late and last and not keep.complete):
                chosen = _unheld_pieces(draft.pieces, held)
                if chosen:
                    _swap(writer, chosen)
                return _Swap(chosen, blocking)
        if late and keep.complete:
            raise _held_too_long(writer, blocking, wait)
        if late:
            return None
        time.sleep(HOLD_LOOK_SECONDS)


def _unheld_pieces(pieces: Sequence[Piece], held: Sequence[Held]) -> list[Piece]:
    """The pieces that change nothing held. After one that stays, delete markers stay too: they may delete its rows."""
    chosen: list[Piece] = []
    for number, piece in enumerate(pieces):
        earlier_stay = len(chosen) < number
        if not piece.held_by(held) and not (earlier_stay and piece.drops_markers):
            chosen.append(piece)
    return chosen


def _held_too_long(writer: PartitionWriter, held: Sequence[Held], wait: float) -> UnavailableError:
    return UnavailableError(
        f"{writer.partition.where}: rows that must go are still held after {wait:g} seconds: "
        + "; ".join(map(str, held))
        + ". Nothing was changed",
        hint="let the holder finish and try again; if it is gone for good: `penstock holds release NAME`",
    )


def _swap(writer: PartitionWriter, pieces: Sequence[Piece]) -> None:
    partition = writer.partition
    current = partition.manifest(None)
    # Retention may have removed, and rolling added, segments since step 1.
    fresh = [piece.segment for piece in pieces if piece.segment and piece.segment.end_offset > current.start_offset]
    for segment in fresh:
        for name in (segment.name, segment.index_name):
            partition.files.replace(partition.directory / (name + DRAFT_SUFFIX), partition.directory / name)
    partition.files.sync_directory(partition.directory)
    replaced = {source.name for piece in pieces for source in piece.sources}
    rest = [segment for segment in current.segments if segment.name not in replaced]
    segments = sorted([*fresh, *rest], key=lambda segment: segment.base_offset)
    writer.replace_manifest(current.with_segments(tuple(segments), rewritten=True))


def _remove(writer: PartitionWriter, segments: Sequence[Segment]) -> None:
    """Remove files by name, without the lock: removing large files takes a while, and nobody uses these names again."""
    partition = writer.partition
    for segment in segments:
        for name in (segment.name, segment.index_name):
            partition.files.remove(partition.directory / name)
