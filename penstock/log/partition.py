"""A partition on disk: where its files are, how it begins, and how its visible end is found.

Writers change a partition through `writer`; readers only look, through `reader`. Both start from here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.errors import DamagedError, PenstockError, UnavailableError
from penstock.log.frame import NO_SEQUENCE, STATE, Header, body_of, encode_state, parse_header, place
from penstock.log.holds import Held, PartitionHolds
from penstock.log.manifest import (
    Manifest,
    Segment,
    load_manifest,
    refuse_foreign_manifest,
    segment_name,
    store_manifest,
)
from penstock.log.recovery import Outcome, settled_tail, trusted_tail
from penstock.log.segment import FIRST_FRAME, Preface, check_preface, encode_preface
from penstock.log.tail import Tail, TailFile, owner_of
from penstock.storage.files import File, Files, disk_errors

logger = logging.getLogger("penstock.log")
LOCK_NAME = "lock"
# Most states are shorter and read at once.
STATE_BYTES = 4096

Outcomes = Callable[[int], Outcome]


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a named producer has come in this partition."""

    epoch: int
    sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class State:
    """What a writer must know beyond the tail. It is what the frames add up to, so any process can work it out."""

    producers: dict[int, Mark] = field(default_factory=dict)

    def add(self, header: Header) -> None:
        if header.sequence != NO_SEQUENCE:
            self.producers[header.producer] = Mark(
                header.epoch, header.sequence, header.base_offset, header.last_offset
            )

    def encode(self) -> bytes:
        marks = {str(producer): asdict(mark) for producer, mark in self.producers.items()}
        return json.dumps({"producers": marks}).encode()

    @staticmethod
    def decode(raw: bytes) -> State:
        marks = json.loads(raw)["producers"]
        return State({int(producer): Mark(**mark) for producer, mark in marks.items()})


class Partition:
    """The files of one partition, shared by all readers and writers of this process."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        topic: str,
        topic_id: bytes,
        number: int,
        outcomes: Outcomes,
        holds: PartitionHolds | None = None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic = topic
        self.topic_id = topic_id
        self.number = number
        self.outcomes = outcomes
        self.tail_file = TailFile(files, directory, owner=owner_of(topic_id, number))
        self._compared = False
        self.boot = files.boot()
        self.closed = False
        self._holds = holds
        self._manifest: Manifest | None = None

    @property
    def where(self) -> str:
        return f"topic '{self.topic}' partition {self.number}"

    def close(self) -> None:
        self.closed = True
        self.tail_file.close()

    def manifest(self, generation: int | None = None) -> Manifest:
        """The manifest; the one kept in memory serves as long as it is of the wanted generation."""
        if self._manifest is None or self._manifest.generation != generation:
            with disk_errors(self.where):
                manifest = load_manifest(self.files, self.directory)
            refuse_foreign_manifest(manifest, self.directory, self.topic_id.hex(), self.number)
            self._manifest = manifest
        return self._manifest

    def forget_manifest(self) -> None:
        self._manifest = None

    def replace_manifest(self, manifest: Manifest) -> None:
        """Only under the partition's lock."""
        manifest = replace(manifest, topic=self.topic_id.hex(), partition=self.number)
        store_manifest(self.files, self.directory, manifest)
        self._manifest = manifest

    @contextmanager
    def held(self, *, markers: bool = False) -> Iterator[tuple[Held, ...]]:
        """What is held of this partition, and with `markers` also the delete markers that readers still need.

        In the block nobody can place another hold: remove rows only there.
        """
        if self._holds is None:
            yield ()
            return
        with self._holds.locked(markers=markers) as held:
            yield held

    def tail(self) -> Tail:
        """The tail a reader may go by: its end is what everybody may see.

        If a transaction is still pending in it, that one was not committed a moment ago, and may be now.
        """
        if not self._compared:
            self._compared = True
            if self.tail_file.is_behind():
                return self._recover()
        tail = self.tail_file.read()
        if tail is None or tail.boot != self.boot:
            return self._recover()
        if tail.pending_transaction and self.outcomes(tail.pending_transaction) is Outcome.COMMITTED:
            return replace(
                tail,
                end_position=tail.pending_position,
                end_offset=tail.pending_offset,
                pending_transaction=0,
            )
        return tail

    def settle(self) -> Tail:
        """Make the files agree with the tail and the tail with the manifest, whatever crashed before.

        Only under the partition's lock. What was never visible is cut and reported; damage is raised.
        """
        copy, tail = self.tail_file.read_copy(), self.tail_file.read()
        manifest = self.manifest(tail.generation if tail else None)
        active = self.open_segment(manifest.active)
        known = trusted_tail(tail, copy, manifest, active, boot=self.boot, where=self.where)
        if known != tail and tail is not None and tail.boot == self.boot:
            logger.warning("%s: its tail is an older copy; its end is found by its frames", self.where)
        try:
            settled, cut = settled_tail(
                known, manifest, active, boot=self.boot, outcomes=self.outcomes, where=self.where
            )
            if cut:
                active.truncate(settled.end_position)
                logger.warning("%s: %s", self.where, cut)
            if cut or known is None or known.boot != self.boot:
                active.sync()  # before the tail calls it durable
        finally:
            active.close()
        return settled if settled == tail else self.tail_file.write(settled)

    def open_segment(self, segment: Segment) -> File:
        path = self.directory / segment.name
        try:
            with disk_errors(self.where, but=FileNotFoundError):
                file = self.files.open(path)
        except FileNotFoundError:
            raise DamagedError(
                f"{self.where}: segment {segment.name} is missing; "
                f"it holds offsets {segment.base_offset} to {max(segment.base_offset, segment.end_offset - 1)}",
                hint="restore the file from a copy",
            ) from None
        try:
            check_preface(
                file.view(0, min(FIRST_FRAME, file.size())),
                Preface(self.topic_id, self.number, segment.base_offset),
                where=f"{self.where}: segment {segment.name}",
            )
        except PenstockError:
            file.close()
            raise
        return file

    def check_writable(self, active: File) -> None:
        """Refuse a partition whose active segment or tail this process may only read, before anything is written."""
        try:
            active.check_writable()
            self.tail_file.check_writable()
        except PermissionError as error:
            raise UnavailableError(
                f"{self.where}: this process may not write {error.filename}",
                hint=f"as its owner, make it writable: chmod u+w {error.filename}; or run this process as its owner",
            ) from error

    def remove_garbage(self, manifest: Manifest) -> None:
        """Remove what unfinished steps left behind. Only under the partition's lock."""
        known = {name for segment in manifest.segments for name in (segment.name, segment.index_name)}
        for name in self.files.names(self.directory):
            if name not in known and name.endswith((".segment", ".index", ".tmp")):
                self.files.remove(self.directory / name)

    def _recover(self) -> Tail:
        try:
            with closing(self.files.lock(self.directory / LOCK_NAME)) as lock:
                lock.acquire()
                self.forget_manifest()
                return self.settle()
        except PermissionError as error:
            raise UnavailableError(
                f"{self.where}: must be checked after the machine restarted, and this process may not write there",
                hint=f"run `penstock verify {self.topic}` once as the owner of {self.directory}",
            ) from error


def create_partition(files: Files, directory: Path, *, topic_id: bytes, number: int) -> None:
    """Lay out an empty partition. Every file is on disk when this returns."""
    files.make_directory(directory)
    segment = Segment(segment_name(0, 1), base_offset=0)
    preface = Preface(topic_id, number, 0)
    end = write_segment_start(files, directory / segment.name, preface, State(), append_time=0)
    tail_file = TailFile(files, directory, create=True, owner=owner_of(topic_id, number))
    tail_file.write(Tail(files.boot(), 1, 0, end, 0, end, 0))
    tail_file.sync()
    tail_file.close()
    files.lock(directory / LOCK_NAME).close()
    store_manifest(files, directory, Manifest(1, 0, (segment,), topic=topic_id.hex(), partition=number))


def write_segment_start(files: Files, path: Path, preface: Preface, state: State, *, append_time: int) -> int:
    """Write a new segment's header and state frame to disk; return the position of its first frame of rows."""
    buffers: list[bytes | pa.Buffer] = [encode_preface(preface)]
    body = encode_state(state.encode())
    buffers += place(body, base_offset=preface.base_offset, append_time=append_time, synced=0)
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, buffers)
        file.sync()
    finally:
        file.close()
    files.sync_directory(path.parent)
    return FIRST_FRAME + body.length


def read_state(file: File) -> tuple[State, int]:
    """The state at the start of a segment, and the position after it; BadFrameError when it is damaged."""
    data = file.view(FIRST_FRAME, min(STATE_BYTES, file.size() - FIRST_FRAME))
    header = parse_header(data)
    if header.length > data.size:
        data = file.view(FIRST_FRAME, min(header.length, file.size() - FIRST_FRAME))
    if not header.flags & STATE:
        return State(), FIRST_FRAME
    return State.decode(body_of(header, data).to_pybytes()), FIRST_FRAME + header.length
