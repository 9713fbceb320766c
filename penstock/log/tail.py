"""The tail of a partition: the one small record that says where its visible data ends, and a copy of it.

It is written after the data it speaks of is safe, without a sync of its own, so after a power loss it may be old but
never wrong: everything before `durable_position` was on disk when the record was written. A record of an earlier boot
is therefore only a lower bound. Readers wait for this file to change.

Every record has a number that grows, and says whose it is. The copy is written right after the tail: a tail with a
lower number than its copy, or of another partition, was put there by somebody else and is not believed.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c

from penstock.storage.files import File, Files
from penstock.units import NO_TIME

TAIL_NAME = "tail"
TAIL_BYTES = 128
COPY_NAME = "tail.copy"
_TAIL = struct.Struct("<4s16sQqqqqqqqQqqQI4xI")
assert _TAIL.size == TAIL_BYTES
_MAGIC = b"PST1"
# A reader may meet a writer in the middle of a record; the second look finds it whole.
_LOOKS = 100


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a partition ends. `pending_*` is the end as it will be if the pending transaction turns out committed."""

    boot: bytes
    generation: int  # of the manifest this record belongs to
    active_base: int  # the base offset of the segment that `end_position` is in
    end_position: int
    end_offset: int
    durable_position: int
    durable_offset: int
    append_time: int = 0
    max_time: int = NO_TIME
    pending_transaction: int = 0
    pending_position: int = 0
    pending_offset: int = 0
    number: int = 0  # grows with every record; 0 in those of earlier versions
    owner: int = 0  # of which partition; 0 in those of earlier versions


def owner_of(topic_id: bytes, partition: int) -> int:
    """What the records of a partition carry to be told from those of others."""
    return int(crc32c(topic_id + partition.to_bytes(4, "little"))) or 1


def encode_tail(tail: Tail) -> bytes:
    packed = _TAIL.pack(
        _MAGIC,
        tail.boot,
        tail.generation,
        tail.active_base,
        tail.end_position,
        tail.end_offset,
        tail.durable_position,
        tail.durable_offset,
        tail.append_time,
        tail.max_time,
        tail.pending_transaction,
        tail.pending_position,
        tail.pending_offset,
        tail.number,
        tail.owner,
        0,
    )
    return packed[:-4] + crc32c(packed[:-4]).to_bytes(4, "little")


def decode_tail(raw: bytes) -> Tail | None:
    """The record, or None when the bytes are not a whole and undamaged one."""
    if len(raw) != TAIL_BYTES or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    magic, *fields, _ = _TAIL.unpack(raw)
    return Tail(*fields) if magic == _MAGIC else None


class TailFile:
    """The tail and its copy on disk, kept open. `owner` is that of its partition; 0 takes any."""

    def __init__(self, files: Files, directory: Path, *, create: bool = False, owner: int = 0) -> None:
        self.path = directory / TAIL_NAME
        self._files = files
        self._owner = owner
        self._highest = 0
        self._file: File = files.open(self.path, create=create)
        self._copy: File | None = None
        self._open_copy(create=create)

    def check_writable(self) -> None:
        """Raise PermissionError, which names the file, if this process may only read the tail or its copy."""
        self._file.check_writable()
        if self._copy is not None:
            self._copy.check_writable()

    def read(self) -> Tail | None:
        """The tail; None if it is not whole, or not of this partition."""
        return self._record(self._file)

    def read_copy(self) -> Tail | None:
        """The copy, which is never ahead of the tail that is read after it. None where there is none."""
        self._open_copy(create=False)
        return self._record(self._copy) if self._copy is not None else None

    def is_behind(self) -> bool:
        """Whether the tail is older than its copy."""
        copy = self.read_copy()
        tail = self.read()
        return copy is not None and tail is not None and tail.number < copy.number

    def write(self, tail: Tail) -> Tail:
        """Store a record, and its copy; return it with its number."""
        self._highest = max(self._highest, tail.number) + 1
        tail = replace(tail, number=self._highest, owner=self._owner)
        encoded = encode_tail(tail)
        self._file.write_at(0, [encoded])
        if self._copy is None:
            self._open_copy(create=True)
        assert self._copy is not None
        self._copy.write_at(0, [encoded])
        return tail

    def sync(self) -> None:
        self._file.sync()
        if self._copy is not None:
            self._copy.sync()

    def close(self) -> None:
        self._file.close()
        if self._copy is not None:
            self._copy.close()

    def _open_copy(self, *, create: bool) -> None:
        if self._copy is None:
            with suppress(FileNotFoundError):
                self._copy = self._files.open(self.path.with_name(COPY_NAME), create=create)

    def _record(self, file: File) -> Tail | None:
        for _ in range(_LOOKS):
            tail = decode_tail(file.view(0, TAIL_BYTES).to_pybytes())
            if tail is not None:
                self._highest = max(self._highest, tail.number)
                known = self._owner and tail.owner
                return tail if tail.owner == self._owner or not known else None
        return None
