"""A frame: its bytes on disk, and that no other bytes are taken for one."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log.frame import (
    DELETED_COLUMN,
    DELETES,
    HEADER_BYTES,
    OFFSET_COLUMN,
    SPARSE,
    STATE,
    BadFrameError,
    Body,
    Header,
    Stamp,
    body_of,
    decode,
    encode,
    encode_state,
    padded_length,
    parse_header,
    place,
    row_offsets,
)
from penstock.units import NO_TIME

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", tz="UTC"))])
STATE_JSON = b'{"producers": {}}'
GOLDEN_HEADER = bytes.fromhex(
    "50534631c0000000a236a974080000000700000000000000060000000000000000000000000000001100000002000000"
    "03000000000000000500000000000000090000000000000000401e18240a0600000000000000008000000000000000804000"
    "000000000000000000000000000000000000000000000000000083f94b6b"
)


def joined(parts: list[bytes | pa.Buffer]) -> bytes:
    return b"".join(bytes(memoryview(part)) for part in parts)


def batch(keys: list[str | None], times: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.string()), pa.array(times, SCHEMA.field("t").type)], schema=SCHEMA)


def golden_body() -> Body:
    return encode_state(STATE_JSON)


def with_right_checksum(header: bytes) -> bytes:
    return header[:-4] + crc32c(header[:-4]).to_bytes(4, "little")


def test_the_stored_bytes_of_a_frame_have_not_changed() -> None:
    stamp = Stamp(producer=3, epoch=2, sequence=5, transaction=9)
    parts = place(golden_body(), base_offset=7, append_time=1_700_000_000_000_000, synced=64, stamp=stamp)
    assert joined(parts) == GOLDEN_HEADER + STATE_JSON + bytes(47)


def test_every_field_of_a_header_stands_where_the_format_says() -> None:
    header = parse_header(GOLDEN_HEADER)
    assert header == Header(
        length=192,
        body_crc=0x74A936A2,
        flags=STATE,
        base_offset=7,
        last_offset=6,
        rows=0,
        schema_id=0,
        body_length=17,
        epoch=2,
        producer=3,
        sequence=5,
        transaction=9,
        append_time=1_700_000_000_000_000,
        min_time=NO_TIME,
        max_time=NO_TIME,
        synced=64,
    )


@pytest.mark.parametrize("position", [0, 64, 192])
def test_a_frame_is_read_back_from_any_place(position: int) -> None:
    rows = batch(["a", None, "c"], [3_000_000, None, 1_000_000])
    body = encode(rows, schema_id=4, time_column="t")
    raw = bytes(position) + joined(place(body, base_offset=100, append_time=5, synced=0)) + b"more"
    header = parse_header(raw, position)
    assert (header.base_offset, header.last_offset, header.next_offset, header.rows) == (100, 102, 103, 3)
    assert (header.min_time, header.max_time, header.schema_id) == (1_000_000, 3_000_000, 4)
    assert header.length == body.length
    assert header.length % 64 == 0
    read = decode(header, body_of(header, pa.py_buffer(raw), position), SCHEMA)
    assert read.equals(rows)
    assert row_offsets(header, read).tolist() == [100, 101, 102]


def test_hidden_columns_are_stored_and_read_back() -> None:
    rows = batch(["a", "b"], [1, 2])
    stored = rows.append_column(OFFSET_COLUMN, pa.array([5, 9], pa.int64()))
    stored = stored.append_column(DELETED_COLUMN, pa.array([False, True]))
    body = encode(stored, schema_id=1, flags=SPARSE | DELETES)
    raw = pa.py_buffer(joined(place(body, base_offset=5, last_offset=9, append_time=0, synced=0)))
    header = parse_header(raw)
    read = decode(header, body_of(header, raw), SCHEMA)
    assert row_offsets(header, read).tolist() == [5, 9]
    assert read.column(DELETED_COLUMN).to_pylist() == [False, True]
    assert header.next_offset == 10


@pytest.mark.parametrize("times", [[], [None], [None, None]])
def test_a_frame_without_times_has_no_time_range(times: list[int | None]) -> None:
    body = encode(batch(["a"] * len(times), times), schema_id=1, time_column="t")
    assert (body.min_time, body.max_time) == (NO_TIME, NO_TIME)


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    raw = joined(place(encode(batch(["a", "b"], [1, 2]), schema_id=1), base_offset=0, append_time=0, synced=0))
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadFrameError):
            body_of(parse_header(bytes(damaged)), pa.py_buffer(bytes(damaged)))


def test_every_shorter_frame_is_noticed() -> None:
    raw = joined(place(golden_body(), base_offset=0, append_time=0, synced=0))
    for size in range(len(raw)):
        short = pa.py_buffer(raw[:size])
        with pytest.raises(BadFrameError, match=r"\d+ of \d+ (header|body) bytes"):
            body_of(parse_header(short), short)


@given(st.binary(max_size=400), st.integers(0, 300))
@example(b"PSF1" + bytes(124), 0)
@example(bytes(128), 0)
def test_arbitrary_bytes_are_refused_as_a_header(data: bytes, position: int) -> None:
    with pytest.raises(BadFrameError):
        parse_header(data, position)


FIELDS = struct.Struct("<4sIIIqqIIIIQqQqqqqI16xI")
FORMATS = "IIIqqIIIIQqQqqqqI"
LIMITS = {"I": (0, 2**32 - 1), "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}


@given(st.integers(0, len(FORMATS) - 1).flatmap(lambda at: st.tuples(st.just(at), st.integers(*LIMITS[FORMATS[at]]))))
@example((0, 0))
@example((0, 64))
@example((7, 2**32 - 1))
def test_a_mutated_header_with_a_right_checksum_never_reads_beyond_its_frame(change: tuple[int, int]) -> None:
    """Nobody writes such a header, but whoever copies files about may make one."""
    at, value = change
    fields = list(FIELDS.unpack(GOLDEN_HEADER))
    fields[1 + at] = value
    raw = with_right_checksum(FIELDS.pack(*fields)) + STATE_JSON + bytes(47)
    try:
        header = parse_header(raw)
        body = body_of(header, pa.py_buffer(raw))
    except BadFrameError:
        return
    assert HEADER_BYTES <= header.length <= len(raw)
    assert body.size == header.body_length <= header.length - HEADER_BYTES


@given(st.integers(0, 10_000))
def test_padding_fills_up_to_the_next_multiple_of_64(length: int) -> None:
    assert padded_length(length) % 64 == 0
    assert 0 <= padded_length(length) - length < 64


@given(
    st.lists(st.tuples(st.none() | st.text(max_size=20), st.none() | st.integers(0, 2**50)), max_size=30),
    st.integers(0, 2**62),
)
def test_any_rows_at_any_offset_are_read_back(rows: list[tuple[str | None, int | None]], base_offset: int) -> None:
    stored = batch([key for key, _ in rows], [time for _, time in rows])
    body = encode(stored, schema_id=1, time_column="t")
    raw = pa.py_buffer(joined(place(body, base_offset=base_offset, append_time=1, synced=0)))
    header = parse_header(raw)
    read = decode(header, body_of(header, raw), SCHEMA)
    assert read.equals(stored)
    assert np.array_equal(row_offsets(header, read), np.arange(base_offset, base_offset + len(rows)))


def test_headers_are_plain_values() -> None:
    header = parse_header(GOLDEN_HEADER)
    assert header._replace(rows=1) != header
    assert hash(header) == hash(parse_header(GOLDEN_HEADER))
