"""A frame: one Arrow record batch with the header that makes it safe to store. Pure functions on bytes.

A frame is written in two steps. `encode` makes the body and its checksum and needs no lock; `place` adds the header
once the offset is known. The format is specified in docs/reference/file-format.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.units import NO_TIME

ALIGNMENT = 64
HEADER_BYTES = 128
MAGIC = b"PSF1"
NO_SEQUENCE = -1

# Flags. The first three say which hidden columns stand after the topic's own, in this order.
SPARSE = 1  # an offset per row: a rewrite has removed rows
DELETES = 2  # a mark per row: true where the row deletes its key
VERSIONS = 4  # a number per row: how many events its key has had, this one included
STATE = 8  # no rows: the body is the partition's state at the start of the segment, as JSON

OFFSET_COLUMN = "_penstock_offset"
DELETED_COLUMN = "_penstock_deleted"
VERSION_COLUMN = "_penstock_version"
HIDDEN_COLUMNS = (
    (SPARSE, pa.field(OFFSET_COLUMN, pa.int64())),
    (DELETES, pa.field(DELETED_COLUMN, pa.bool_())),
    (VERSIONS, pa.field(VERSION_COLUMN, pa.int64())),
)

_HEADER = struct.Struct("<4sIIIqqIIIIQqQqqqqI16xI")
assert _HEADER.size == HEADER_BYTES


class Header(NamedTuple):
    """What stands before a body. Times are microseconds since 1970, `NO_TIME` where there is none.

    A tuple because opening a segment makes one for each of its frames, and a dataclass takes three times as long.
    """

    length: int  # of the whole frame: header, body, padding
    body_crc: int
    flags: int
    base_offset: int
    last_offset: int
    rows: int
    schema_id: int
    body_length: int
    epoch: int
    producer: int  # 0: none
    sequence: int
    transaction: int  # 0: none
    append_time: int
    min_time: int
    max_time: int
    synced: int  # everything before this byte of the segment was on disk when the frame was written

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


@dataclass(frozen=True, slots=True)
class Body:
    """An encoded record batch, ready to be placed at an offset."""

    buffer: pa.Buffer
    crc: int
    flags: int
    rows: int
    schema_id: int
    min_time: int
    max_time: int

    @property
    def length(self) -> int:
        """The bytes of the frame this body will make."""
        return HEADER_BYTES + padded_length(self.buffer.size)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who wrote a frame: a named producer with its epoch and sequence, a transaction, or neither."""

    producer: int = 0
    epoch: int = 0
    sequence: int = NO_SEQUENCE
    transaction: int = 0


ANONYMOUS = Stamp()


class BadFrameError(Exception):
    """These bytes are not a whole, undamaged frame. Whether that is a torn tail or damage is for the caller to say."""


def padded_length(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def encode(batch: pa.RecordBatch, *, schema_id: int, time_column: str | None = None, flags: int = 0) -> Body:
    """Encode a batch whose hidden columns, if any, are named by `flags` and stand last."""
    buffer = batch.serialize()
    min_time, max_time = time_range(batch, time_column)
    return Body(buffer, _body_crc(buffer), flags, batch.num_rows, schema_id, min_time, max_time)


def encode_state(content: bytes) -> Body:
    buffer = pa.py_buffer(content)
    return Body(buffer, _body_crc(buffer), STATE, 0, 0, NO_TIME, NO_TIME)


def place(
    body: Body,
    *,
    base_offset: int,
    append_time: int,
    synced: int,
    stamp: Stamp = ANONYMOUS,
    last_offset: int | None = None,
) -> list[bytes | pa.Buffer]:
    """The buffers of the whole frame, in the order in which they are written."""
    if last_offset is None:
        last_offset = base_offset + body.rows - 1
    packed = _HEADER.pack(
        MAGIC,
        body.length,
        body.crc,
        body.flags,
        base_offset,
        last_offset,
        body.rows,
        body.schema_id,
        body.buffer.size,
        stamp.epoch,
        stamp.producer,
        stamp.sequence,
        stamp.transaction,
        append_time,
        body.min_time,
        body.max_time,
        synced,
        0,
        0,
    )
    header = packed[:-4] + crc32c(packed[:-4]).to_bytes(4, "little")
    return [header, body.buffer, bytes(padded_length(body.buffer.size) - body.buffer.size)]


def parse_header(data: bytes | memoryview | pa.Buffer, position: int = 0) -> Header:
    """Read and check the header at `position`; raise BadFrameError when it is short, strange or damaged."""
    raw = memoryview(data)
    if len(raw) < position + HEADER_BYTES:
        raise BadFrameError(f"{max(0, len(raw) - position)} of {HEADER_BYTES} header bytes")
    fields = _HEADER.unpack_from(raw, position)
    if fields[0] != MAGIC:
        raise BadFrameError("no frame begins here")
    if crc32c(raw[position : position + HEADER_BYTES - 4]) != fields[-1]:
        raise BadFrameError("the header's checksum does not match")
    header = Header._make(fields[1:17])
    if header.length != HEADER_BYTES + padded_length(header.body_length):
        raise BadFrameError("the header's lengths do not agree")
    return header


def body_of(header: Header, data: pa.Buffer, position: int = 0) -> pa.Buffer:
    """The checked body of the frame at `position`; raise BadFrameError when it is short or damaged."""
    start = position + HEADER_BYTES
    whole = header.length - HEADER_BYTES
    if data.size < start + whole:
        raise BadFrameError(f"{data.size - start} of {whole} body bytes")
    if crc32c(memoryview(data)[start : start + whole]) != header.body_crc:
        raise BadFrameError("the body's checksum does not match")
    return data.slice(start, header.body_length)


def decode(header: Header, body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The stored batch, hidden columns last. `schema` is the topic's schema of version `header.schema_id`."""
    return pa.ipc.read_record_batch(body, stored_schema(schema, header.flags))


def row_offsets(header: Header, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The offset of every row of a decoded batch."""
    if header.flags & SPARSE:
        return batch.column(OFFSET_COLUMN).to_numpy()
    return np.arange(header.base_offset, header.next_offset, dtype=np.int64)


@lru_cache(maxsize=256)
def stored_schema(schema: pa.Schema, flags: int) -> pa.Schema:
    """The topic's columns, all nullable because a delete has only its key, and the hidden ones."""
    fields = [field.with_nullable(True) for field in schema]
    return pa.schema(fields + [field for flag, field in HIDDEN_COLUMNS if flags & flag])


def time_range(batch: pa.RecordBatch, time_column: str | None) -> tuple[int, int]:
    if time_column is None or batch.num_rows == 0:
        return NO_TIME, NO_TIME
    times = batch.column(time_column)
    if times.null_count == batch.num_rows:
        return NO_TIME, NO_TIME
    bounds = pc.min_max(times)
    return bounds["min"].cast(pa.int64()).as_py(), bounds["max"].cast(pa.int64()).as_py()


def _body_crc(buffer: pa.Buffer) -> int:
    """Over the padding too, so that every byte of a segment is covered by a checksum."""
    return int(crc32c(bytes(padded_length(buffer.size) - buffer.size), crc32c(buffer)))
