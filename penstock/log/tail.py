"""The tail of a partition: the one small record that says where its visible data ends.

It is written after the data it speaks of is safe, without a sync of its own, so after a power loss it may be old but
never wrong: everything before `durable_position` was on disk when the record was written. A record of an earlier boot
is therefore only a lower bound. Readers wait for this file to change.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from penstock.log.files import File, Files
from penstock.log.frame import NO_TIME

TAIL_NAME = "tail"
TAIL_BYTES = 128
_TAIL = struct.Struct("<4s16sQqqqqqqqQqq16xI")
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
    """The tail on disk, kept open."""

    def __init__(self, files: Files, directory: Path, *, create: bool = False) -> None:
        self.path = directory / TAIL_NAME
        self._file: File = files.open(self.path, create=create)

    def read(self) -> Tail | None:
        for _ in range(_LOOKS):
            tail = decode_tail(self._file.view(0, TAIL_BYTES).to_pybytes())
            if tail is not None:
                return tail
        return None

    def write(self, tail: Tail) -> None:
        self._file.write_at(0, [encode_tail(tail)])

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
