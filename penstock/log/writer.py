"""Writing to one partition: group commit, idempotent producers, conditional appends, rolling.

The path of an append, with the numbers the code below carries:

1. Take the partition's lock and catch up with what other processes appended.
2. Decide each waiting request: a repeat, a conflict, or frames at the next offsets.
3. Write the frames behind the end.
4. Make them durable: one sync for all of them.
5. Publish the new end. From here on they are visible, and acknowledged.

A crash before 5 leaves bytes nobody was told about; the next to take the lock cuts them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import DeclarationError, PenstockError, UnavailableError, UnknownOutcomeError
from penstock.log.active import ActiveSegment
from penstock.log.frame import VERSIONS, Body, encode
from penstock.log.group_commit import GroupCommit
from penstock.log.holds import Held, overlapping_holds, owners
from penstock.log.manifest import Manifest, Segment, segment_name
from penstock.log.numbering import KeysOf, Numbering
from penstock.log.partition import LOCK_NAME, Mark, Partition, write_segment_start
from penstock.log.pending_write import Appended, PendingWrite, Request, Staged
from penstock.log.reader import Schemas
from penstock.log.retention import Expired, Retention, count_expired, first_kept
from penstock.log.segment import Preface
from penstock.log.tail import Tail
from penstock.storage.files import NO_SPACE, disk_errors

logger = logging.getLogger("penstock.log")
# Single appends that wait for the same sync are stored as one frame while it stays below this.
COALESCE_ROWS = 1024
# Rows that were set aside are written in pieces of about so much, which is what is in memory of them at a time,
PIECE_BYTES = 8 * 1024 * 1024
# and synced whenever so much was written, so that the last sync does not take long.
SYNC_EVERY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What a writer needs to know of its topic."""

    durability: str = "fsync"  # or "os"
    segment_bytes: int = 128 * 1024 * 1024
    time_column: str | None = None
    retention: Callable[[], Retention] = Retention  # asked when a segment is closed
    keys_of: KeysOf | None = None  # set on versioned topics


class PartitionWriter:
    """Appends to one partition, for all threads of this process."""

    def __init__(
        self,
        partition: Partition,
        schemas: Schemas,
        settings: WriterSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.partition = partition
        self.syncs = 0
        self._settings = settings
        self._clock = clock
        self._lock = partition.files.lock(partition.directory / LOCK_NAME)
        self._busy = threading.Lock()
        self._commits = GroupCommit(self._store)
        self._failure: str | None = None
        self._held: ActiveSegment | None = None
        self._numbering = Numbering(partition, schemas, settings.keys_of) if settings.keys_of else None

    # -- group commit -------------------------------------------------------------------------------------------------

    def append(self, request: Request) -> Appended:
        """Store one request, together with all that wait; return when it is as durable as the topic promises."""
        self._commits.do(request)
        if request.error is not None:
            raise request.error
        assert request.result is not None
        return request.result

    def _store(self, requests: list[Request]) -> None:
        """Steps 1 to 5 for these requests; every one of them has its answer afterwards."""
        try:
            with self.exclusive():
                self.publish(self.stage(requests))
        except PenstockError as error:
            self._refuse(requests, error)
        except BaseException as error:
            self._refuse(requests, self._unknown(f"it was interrupted by {type(error).__name__}"))
            raise

    def _refuse(self, requests: list[Request], error: PenstockError) -> None:
        self._forget_numbers()
        for request in requests:
            if not request.is_answered:
                request.error = error

    @contextmanager
    def exclusive(self) -> Iterator[ActiveSegment]:
        """Step 1. Hold the partition against all other writers, caught up with them."""
        with self._busy:
            self._refuse_if_failed()
            self._lock.acquire()
            try:
                if self._lock.is_removed():
                    raise DeclarationError(
                        f"{self.partition.where}: the topic was dropped",
                        hint="open the log again, and create the topic",
                    )
                with disk_errors(self.partition.where):
                    active = self._catch_up()
                yield active
            finally:
                self._lock.release()

    def stage(self, requests: Sequence[Request], *, transaction: int = 0) -> Staged:
        """Steps 2 to 4, under `exclusive`. Requests that are refused get their error here."""
        staged = self.write(requests, transaction=transaction)
        if staged.frames and (self._settings.durability == "fsync" or transaction):
            self.sync()
        return staged

    def write(
        self,
        requests: Sequence[Request],
        *,
        transaction: int = 0,
        set_aside: Iterable[Request] = (),
        append_time: int = 0,
    ) -> Staged:
        """Steps 2 and 3, under `exclusive`. Frames of a transaction must be synced before they are published.

        `set_aside` comes before the requests, and nobody waits for answers to it. It is taken one by one, so it may be
        more than fits in memory; however much that is, it goes into one segment. `append_time` is given where it has to
        be the same in several partitions: none of their `append_time()` may be later.
        """
        if self._active.tail.end_position >= self._settings.segment_bytes:
            self.roll()
        tail = self._active.tail
        plan = PendingWrite(
            tail,
            self._active.state,
            partition=self.partition.number,
            append_time=append_time or self._now(tail),
            transaction=transaction,
        )
        for request in set_aside:
            plan.add_frame(self._body([request], plan), request.stamp)
            self._write_pieces(plan)
        for sharing in self._frame_requests(requests):
            self._decide(sharing, plan)
        self._write(plan)
        return plan.finish(durable=self._settings.durability == "fsync" or transaction != 0)

    def sync(self) -> None:
        """Step 4, under `exclusive`. Several partitions may be synced at once, by a thread for each."""
        self._do("syncing", self._active.file.sync)
        self.syncs += 1

    def append_time(self) -> int:
        """The time that what is written now is stamped with, under `exclusive`."""
        return self._now(self._active.tail)

    def publish(self, staged: Staged) -> None:
        """Step 5, under `exclusive`."""
        if staged.frames:
            self._do("publishing", lambda: self._active.publish(staged.tail, staged.frames))
            self._active.state.producers.update(staged.producers)
        for request, answer in staged.answers:
            request.result = answer

    def publish_pending(self, staged: Staged, transaction: int) -> None:
        """Step 5 for a transaction that is not committed yet: visible from the moment it is, in all partitions."""
        if not staged.frames:
            return
        pending = replace(
            self._active.tail,
            append_time=staged.tail.append_time,
            max_time=staged.tail.max_time,
            pending_transaction=transaction,
            pending_position=staged.tail.end_position,
            pending_offset=staged.tail.end_offset,
        )
        self._do("publishing", lambda: self._active.announce(pending))

    def roll_back(self) -> None:
        """Undo steps 3 to 5 of a transaction that will not commit, under `exclusive`.

        Where this writer has failed or let go of its files, the next to take the lock does it.
        """
        self._forget_numbers()
        if self._held is None or self._failure is not None:
            return
        plain = replace(self._active.tail, pending_transaction=0, pending_position=0, pending_offset=0)
        self._do("publishing", lambda: self._active.announce(plain))
        self._cut(plain.end_position)

    def poison(self, why: str) -> None:
        """Leave everything as it is on disk, and refuse to go on: the next opening will know more."""
        self._failure = why

    def mark_of(self, producer: int) -> Mark | None:
        """How far a named producer has come here, as of now."""
        with self.exclusive() as active:
            return active.state.producers.get(producer)

    def release_files(self) -> None:
        """Close the files. The next append opens them again, and first removes what unfinished steps left."""
        with self._busy:
            self._release_files()

    def close(self) -> None:
        if self._numbering is not None:
            # Saved versions only spare the next process a scan: not being able to save them is no reason to fail.
            with suppress(PenstockError, OSError), self.exclusive() as active:
                self._numbering.save(active.tail)
        with self._busy:
            self._release_files()
            self._lock.close()

    # -- step 1 -------------------------------------------------------------------------------------------------------

    @property
    def _active(self) -> ActiveSegment:
        assert self._held is not None, "only under `exclusive`"
        return self._held

    def _catch_up(self) -> ActiveSegment:
        if self._held is not None and self._held.matches(self.partition.tail_file.read()):
            return self._held
        try:
            settled = self.partition.settle()
            if self._held is None or not self._held.follow(settled):
                self._reopen(settled)
        except BaseException:
            self._release_files()  # it may be half caught up
            raise
        return self._active

    def _reopen(self, tail: Tail) -> None:
        self._release_files()
        self._held = ActiveSegment(self.partition, tail)

    def _release_files(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    # -- step 2 -------------------------------------------------------------------------------------------------------

    def _frame_requests(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """The requests of each frame: small ones side by side share a frame, unless rows must be numbered."""
        sharing: list[Request] = []
        rows = 0
        for request in requests:
            fits = rows + request.batch.num_rows <= COALESCE_ROWS and self._numbering is None
            if sharing and not (fits and request.can_share_a_frame(sharing[0])):
                yield sharing
                sharing, rows = [], 0
            sharing.append(request)
            rows += request.batch.num_rows
        if sharing:
            yield sharing

    def _decide(self, sharing: list[Request], plan: PendingWrite) -> None:
        request = sharing[0]
        try:
            if len(sharing) == 1 and plan.answer_if_repeated(request, where=self.partition.where):
                return
            plan.add(self._body(sharing, plan), sharing)
        except PenstockError as error:
            request.error = error

    def _body(self, sharing: list[Request], plan: PendingWrite) -> Body:
        request = sharing[0]
        if request.body is not None:
            return request.body
        batch, flags = request.batch, request.flags
        if len(sharing) > 1:
            batch = pa.concat_batches([shared.batch for shared in sharing])  # type: ignore[attr-defined]
        if self._numbering is not None:
            batch, flags = self._numbering.number(request, plan), flags | VERSIONS
        return encode(batch, schema_id=request.schema_id, time_column=self._settings.time_column, flags=flags)

    def _forget_numbers(self) -> None:
        if self._numbering is not None:
            self._numbering.forget()

    # -- steps 3 to 5 -------------------------------------------------------------------------------------------------

    def _write_pieces(self, plan: PendingWrite) -> None:
        """Write what was added so far, if it is enough, so that it need not stay in memory."""
        if plan.unwritten_bytes < PIECE_BYTES:
            return
        before = plan.position - plan.unwritten_bytes - plan.start.end_position
        self._write(plan)
        if before // SYNC_EVERY_BYTES < (plan.position - plan.start.end_position) // SYNC_EVERY_BYTES:
            self.sync()

    def _write(self, plan: PendingWrite) -> None:
        position, buffers = plan.take_buffers()
        if not buffers:
            return
        try:
            self._active.file.write_at(position, buffers)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._fail("writing", error) from error
            self._cut(plan.start.end_position)
            raise self._disk_full(f"{plan.position - plan.start.end_position} bytes were needed") from error

    def _cut(self, position: int) -> None:
        """Take back what was written, durably: old frames must not come back between the sectors of new ones."""
        self._do("cutting", lambda: self._active.file.truncate(position))
        self.sync()

    def _do(self, doing: str, step: Callable[[], None]) -> None:
        """Take a step that cannot be undone. If it fails, this writer has come to its end."""
        try:
            step()
        except OSError as error:
            raise self._fail(doing, error) from error

    def _disk_full(self, needed: str) -> UnavailableError:
        return UnavailableError(
            f"{self.partition.where}: the disk is full; {needed}. Nothing that was acknowledged is lost",
            hint="make space and append again",
        )

    def _disk_problem(self, doing: str, error: OSError) -> PenstockError:
        return self._disk_full(f"{doing} failed") if error.errno in NO_SPACE else self._fail(doing, error)

    def _fail(self, doing: str, error: OSError) -> UnknownOutcomeError:
        """A failed sync may have lost pages that will never be written again, so this writer stops for good."""
        self._failure = f"{doing} failed: {error.strerror}"
        return self._unknown(self._failure)

    def _unknown(self, why: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{self.partition.where}: {why}; the rows may or may not be stored",
            hint="close the log, open it again, and check whether they are there",
        )

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise UnavailableError(
                f"{self.partition.where}: this writer stopped because {self._failure}",
                hint="close the log and open it again; it then verifies what is on disk",
            )

    def _now(self, tail: Tail) -> int:
        """Append times never go back, even if the machine's clock does."""
        return max(tail.append_time, int(self._clock() * 1_000_000))

    # -- segments -----------------------------------------------------------------------------------------------------

    def roll(self) -> Tail:
        """Close the active segment and begin a new one, under `exclusive`; return the end as it is then.

        1. Sync the old segment. 2. Write the start of the new one. 3. Replace the manifest, leaving out what retention
        lets go and nobody holds. 4. Publish. 5. Remove what was left out. A crash after 3 is finished by the next to
        take the lock.
        """
        partition, tail = self.partition, self._active.tail
        manifest = partition.manifest(tail.generation)
        if tail.end_offset == manifest.active.base_offset:
            return tail
        self._do("syncing", self._active.sync)  # 1
        fresh = Segment(segment_name(tail.end_offset, manifest.generation + 1), tail.end_offset, max_time=tail.max_time)
        segments = (*manifest.closed, _closed_segment(manifest.active, tail), fresh)
        gone = count_expired(segments, self._settings.retention(), now=self._now(tail))
        try:
            end = write_segment_start(
                partition.files,
                partition.directory / fresh.name,
                Preface(partition.topic_id, partition.number, fresh.base_offset),
                self._active.state,
                append_time=tail.append_time,
            )  # 2
            self._replace_segments(manifest, segments, gone, strict=False)  # 3
        except OSError as error:
            raise self._disk_problem("beginning a segment", error) from error
        rolled = replace(
            tail,
            generation=manifest.generation + 1,
            active_base=fresh.base_offset,
            end_position=end,
            durable_position=end,
            durable_offset=fresh.base_offset,
        )
        self._do("publishing", lambda: self._active.announce(rolled))  # 4
        with disk_errors(partition.where):
            self._reopen(rolled)  # 5
        return rolled

    def expire(self) -> Expired:
        """Let go what retention no longer keeps and nobody holds."""
        with self.exclusive() as active:
            manifest = self.partition.manifest(active.tail.generation)
            gone = count_expired(manifest.segments, self._settings.retention(), now=self._now(active.tail))
            if not gone:
                return Expired(0)
            done = self._replace_segments(manifest, manifest.segments, gone, strict=True)
            if done.segments:
                self._release_files()  # opening again removes the files
                with disk_errors(self.partition.where):
                    self._catch_up()
            return done

    def _replace_segments(self, manifest: Manifest, segments: Sequence[Segment], gone: int, *, strict: bool) -> Expired:
        """Replace the manifest by one with these segments but the first `gone`, as far as they are not held.

        Where holds cannot be read, `strict` raises; an append must go on, and so lets nothing go.
        """
        with ExitStack() as fixed:
            held: tuple[Held, ...] = ()
            allowed = gone
            try:
                if gone:
                    held = fixed.enter_context(self.partition.held())
                    allowed = first_kept(manifest, segments, gone, held)
            except PenstockError as error:
                if strict:
                    raise
                logger.warning("%s: retention removes nothing: %s", self.partition.where, error.message)
                allowed = 0
            kept = tuple(segments[allowed:])
            if kept != manifest.segments:
                self.replace_manifest(manifest.with_segments(kept, start_offset=_start(manifest, kept)))
        left = overlapping_holds(held, manifest.start_offset, segments[gone].base_offset) if allowed < gone else ()
        return Expired(allowed, gone - allowed, owners(left))

    def replace_manifest(self, manifest: Manifest) -> None:
        """Put a manifest in the place of the present one, under `exclusive`.

        The tail is moved to the new generation first: should this process die in between, nobody trusts a manifest
        they remember, and all look at what is on disk.
        """
        announced = replace(self._active.tail, generation=manifest.generation)
        self._do("publishing", lambda: self._active.announce(announced))
        try:
            self.partition.replace_manifest(manifest)
        except BaseException as error:
            # Old or new, only the disk knows: look there before anything else is done.
            self.partition.forget_manifest()
            self._release_files()
            if not isinstance(error, OSError):
                raise
            raise self._disk_problem("replacing the list of segments", error) from error


def _start(manifest: Manifest, kept: Sequence[Segment]) -> int:
    """The first offset that is kept. Where no segment went it stays, though its rows may be compacted away."""
    return manifest.start_offset if kept[0].name == manifest.segments[0].name else kept[0].base_offset


def _closed_segment(segment: Segment, tail: Tail) -> Segment:
    return replace(
        segment,
        end_offset=tail.end_offset,
        bytes=tail.end_position,
        rows=tail.end_offset - segment.base_offset,
        max_time=tail.max_time,
        append_time=tail.append_time,
    )
