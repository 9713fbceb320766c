"""A segment: a file header, then frames, one after the other, each beginning at a multiple of 64 bytes.

Pure functions on bytes. Which bytes are visible, and what to do about bad ones, is decided in `recovery`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from penstock.errors import DamagedError, DeclarationError
from penstock.log.frame import ALIGNMENT, MAGIC, BadFrameError, Header, body_of, parse_header
from penstock.storage.document import FORMAT

SEGMENT_MAGIC = b"PENSTOCK"
FIRST_FRAME = 64

_PREFACE = struct.Struct("<8sIIq16s20xI")
assert _PREFACE.size == FIRST_FRAME


@dataclass(frozen=True, slots=True)
class Preface:
    """The header of a segment file: whose it is, so that a file in the wrong folder is noticed."""

    topic_id: bytes
    partition: int
    base_offset: int


def encode_preface(preface: Preface) -> bytes:
    packed = _PREFACE.pack(SEGMENT_MAGIC, FORMAT, preface.partition, preface.base_offset, preface.topic_id, 0)
    return packed[:-4] + crc32c(packed[:-4]).to_bytes(4, "little")


def check_preface(data: bytes | memoryview | pa.Buffer, expected: Preface, *, where: str) -> None:
    """Raise unless these are the first bytes of the expected segment, in a format this version reads."""
    raw = bytes(memoryview(data)[:FIRST_FRAME])
    if len(raw) < FIRST_FRAME:
        raise DamagedError(f"{where}: the segment has {len(raw)} bytes; its header alone has {FIRST_FRAME}")
    magic, version, partition, base_offset, topic_id, crc = _PREFACE.unpack(raw)
    if magic != SEGMENT_MAGIC or crc32c(raw[:-4]) != crc:
        raise DamagedError(f"{where}: the segment's header is damaged (bytes 0 to {FIRST_FRAME - 1})")
    if version != FORMAT:
        raise DeclarationError(
            f"{where}: the segment has format {version}; this version of Penstock reads format {FORMAT}",
            hint="open it with the version of Penstock that wrote it",
        )
    found = Preface(topic_id, partition, base_offset)
    if found != expected:
        raise DamagedError(
            f"{where}: the segment belongs elsewhere; found partition {partition} from offset {base_offset}, "
            f"expected partition {expected.partition} from offset {expected.base_offset}"
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """The first thing in a stretch of bytes that is not a whole, undamaged, expected frame."""

    position: int
    offset: int  # the offset that should begin here
    reason: str


@dataclass(frozen=True, slots=True)
class Scan:
    """The frames found from a position on, and why the scan ended before the end of the bytes, if it did."""

    frames: list[tuple[int, Header]]
    end_position: int
    next_offset: int
    problem: Problem | None


def scan(
    data: pa.Buffer, *, start: int, next_offset: int, gaps: bool = False, bodies: bool = True, data_start: int = 0
) -> Scan:
    """Walk frames from byte `start` of the segment; `data` begins at byte `data_start` of it.

    Offsets must follow one another; `gaps` allows holes, which only rewritten segments have.
    """
    frames: list[tuple[int, Header]] = []
    view = memoryview(data)
    position, end = start, data_start + data.size
    while position < end:
        try:
            header = parse_header(view, position - data_start)
            check_order(header, next_offset, gaps=gaps)
            if bodies:
                body_of(header, data, position - data_start)
            elif position + header.length > end:
                raise BadFrameError(f"{end - position} of {header.length} bytes")
        except BadFrameError as bad:
            return Scan(frames, position, next_offset, Problem(position, next_offset, str(bad)))
        frames.append((position, header))
        position += header.length
        next_offset = header.next_offset
    return Scan(frames, position, next_offset, None)


def check_order(header: Header, next_offset: int, *, gaps: bool) -> None:
    """Raise BadFrameError unless the frame may stand where `next_offset` is expected."""
    if header.base_offset < next_offset or (header.base_offset > next_offset and not gaps):
        raise BadFrameError(f"the frame begins with offset {header.base_offset} instead of {next_offset}")


def later_frames(data: pa.Buffer, *, after: int, data_start: int = 0) -> Iterator[tuple[int, Header]]:
    """Whole, undamaged frames somewhere after byte `after`: what was stored there, and where reading can go on."""
    first = -(-(after + 1) // ALIGNMENT) * ALIGNMENT - data_start
    usable = (data.size - first) // ALIGNMENT * ALIGNMENT
    if usable <= 0:
        return
    words = np.frombuffer(memoryview(data), dtype="<u4", count=usable // 4, offset=first)[:: ALIGNMENT // 4]
    for index in np.flatnonzero(words == int.from_bytes(MAGIC, "little")):
        position = first + int(index) * ALIGNMENT
        try:
            header = parse_header(data, position)
            body_of(header, data, position)
        except BadFrameError:
            continue
        yield position + data_start, header


def offsets_at_risk(start: int, end: int) -> str:
    """`end` is exclusive, and not above `start` where it is not known."""
    if end <= start:
        return f"offsets {start} and on are at risk"
    return f"offset {start} is at risk" if end == start + 1 else f"offsets {start} to {end - 1} are at risk"
