"""What one pass of a writer will store: requests become frames at the next offsets. Nothing here touches a disk."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import FencedError
from penstock.log.frame import ANONYMOUS, NO_SEQUENCE, Body, Header, Stamp, parse_header, place
from penstock.log.partition import Mark, State
from penstock.log.tail import Tail
from penstock.storage.files import Buffer


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that are stored, from `base_offset` on. `repeated`: they had been stored before (-1: long before)."""

    partition: int
    base_offset: int
    rows: int
    repeated: bool = False


@dataclass(slots=True)
class Request:
    """Rows that want to be appended together: one frame, or a part of one."""

    batch: pa.RecordBatch  # in stored form: hidden columns last, as `flags` tells
    schema_id: int
    flags: int = 0
    stamp: Stamp = ANONYMOUS
    expect: int | None = None  # the version the batch's only key must have
    key: str = ""  # that key, for messages
    body: Body | None = None  # the batch encoded, where that was done ahead
    result: Appended | None = None
    error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.result is not None or self.error is not None

    def can_share_a_frame(self, neighbour: Request) -> bool:
        """Whether both may become one frame: nobody needs to find either by its sequence."""
        alone = self.body is not None or self.stamp.sequence != NO_SEQUENCE
        alike = (self.schema_id, self.flags, self.stamp) == (neighbour.schema_id, neighbour.flags, neighbour.stamp)
        return alike and not alone and neighbour.body is None


@dataclass(frozen=True, slots=True)
class Staged:
    """Frames that are written and durable but not yet visible, and the end as it will be with them."""

    tail: Tail
    frames: list[tuple[int, Header]]
    producers: dict[int, Mark]
    answers: list[tuple[Request, Appended]]


class PendingWrite:
    """Grows request by request, from the present end on."""

    def __init__(self, start: Tail, state: State, *, partition: int, append_time: int, transaction: int) -> None:
        self.start = start
        self.position = start.end_position
        self.next_offset = start.end_offset
        self.frames: list[tuple[int, Header]] = []
        self._buffers: list[Buffer] = []
        self._written = start.end_position
        self._state = state
        self._partition = partition
        self._append_time = append_time
        self._transaction = transaction
        self._max_time = start.max_time
        self._producers: dict[int, Mark] = {}
        self._answers: list[tuple[Request, Appended]] = []

    def answer_if_repeated(self, request: Request, *, where: str) -> bool:
        """Answer a request whose producer has come as far already; refuse one whose producer was replaced."""
        stamp = request.stamp
        mark = self._producers.get(stamp.producer) or self._state.producers.get(stamp.producer)
        if stamp.sequence == NO_SEQUENCE or mark is None:
            return False
        if stamp.epoch < mark.epoch:
            raise FencedError(
                f"{where}: producer epoch {stamp.epoch} was replaced by epoch {mark.epoch}",
                hint="another process opened this producer; stop this one",
            )
        if stamp.sequence > mark.sequence:
            return False
        base_offset = mark.base_offset if stamp.sequence == mark.sequence else -1
        answer = Appended(self._partition, base_offset, request.batch.num_rows, repeated=True)
        self._answers.append((request, answer))
        return True

    @property
    def unwritten_bytes(self) -> int:
        return self.position - self._written

    def take_buffers(self) -> tuple[int, list[Buffer]]:
        """Where the frames belong that were added since the last call, and their bytes, which are then forgotten."""
        position, buffers = self._written, self._buffers
        self._written, self._buffers = self.position, []
        return position, buffers

    def add(self, body: Body, requests: list[Request]) -> None:
        """One more frame, which holds the rows of these requests."""
        base_offset = self.next_offset
        self.add_frame(body, requests[0].stamp)
        for request in requests:
            rows = request.batch.num_rows
            self._answers.append((request, Appended(self._partition, base_offset, rows)))
            base_offset += rows

    def add_frame(self, body: Body, stamp: Stamp) -> None:
        """One more frame, for which nobody waits."""
        if self._transaction:
            stamp = replace(stamp, transaction=self._transaction)
        buffers = place(
            body,
            base_offset=self.next_offset,
            append_time=self._append_time,
            synced=self.start.durable_position,
            stamp=stamp,
        )
        header = parse_header(buffers[0])
        self._buffers += buffers
        self.frames.append((self.position, header))
        self.position += header.length
        self._max_time = max(self._max_time, header.max_time)
        if stamp.sequence != NO_SEQUENCE:
            mark = Mark(stamp.epoch, stamp.sequence, header.base_offset, header.last_offset)
            self._producers[stamp.producer] = mark
        self.next_offset += body.rows

    def finish(self, *, durable: bool) -> Staged:
        """The end these frames lead to. Frames that are on disk move the durable end along."""
        start = self.start
        tail = replace(
            start,
            end_position=self.position,
            end_offset=self.next_offset,
            durable_position=self.position if durable else start.durable_position,
            durable_offset=self.next_offset if durable else start.durable_offset,
            append_time=self._append_time if self.frames else start.append_time,
            max_time=self._max_time,
        )
        return Staged(tail, self.frames, self._producers, self._answers)
