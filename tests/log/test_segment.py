"""A segment: its first bytes, and walking its frames up to the first that is not one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DamagedError, DeclarationError
from penstock.log.frame import encode, place
from penstock.log.segment import FIRST_FRAME, Preface, check_preface, encode_preface, later_frames, scan

PREFACE = Preface(bytes(range(16)), 3, 1_000_000)
GOLDEN_PREFACE = bytes.fromhex(
    "50454e53544f434b010000000300000040420f0000000000000102030405060708090a0b0c0d0e0f"
    "0000000000000000000000000000000000000000a52765b2"
)
SCHEMA = pa.schema([("v", pa.int64())])


def frame(base_offset: int, rows: int = 2, *, synced: int = 0) -> bytes:
    values = list(range(base_offset, base_offset + rows))
    body = encode(pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA), schema_id=1)
    return b"".join(
        bytes(memoryview(part)) for part in place(body, base_offset=base_offset, append_time=0, synced=synced)
    )


FRAMES = [frame(0), frame(2, 50), frame(52)]
WHOLE = bytes(FIRST_FRAME) + b"".join(FRAMES)
STARTS = [FIRST_FRAME, FIRST_FRAME + len(FRAMES[0]), FIRST_FRAME + len(FRAMES[0]) + len(FRAMES[1])]


def test_the_stored_bytes_of_a_preface_have_not_changed() -> None:
    assert encode_preface(PREFACE) == GOLDEN_PREFACE
    check_preface(GOLDEN_PREFACE + b"frames", PREFACE, where="here")


def test_every_flipped_bit_of_a_preface_is_damage() -> None:
    for bit in range(8 * FIRST_FRAME):
        damaged = bytearray(GOLDEN_PREFACE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedError, match="here: the segment's header is damaged"):
            check_preface(bytes(damaged), PREFACE, where="here")


@pytest.mark.parametrize("size", [0, 1, 63])
def test_a_short_preface_is_damage(size: int) -> None:
    with pytest.raises(DamagedError, match=f"has {size} bytes; its header alone has 64"):
        check_preface(GOLDEN_PREFACE[:size], PREFACE, where="here")


def test_a_segment_of_a_later_format_is_not_called_damaged() -> None:
    newer = GOLDEN_PREFACE[:8] + (2).to_bytes(4, "little") + GOLDEN_PREFACE[12:-4]
    with pytest.raises(DeclarationError, match="format 2; this version of Penstock reads format 1"):
        check_preface(newer + crc32c(newer).to_bytes(4, "little"), PREFACE, where="here")


@pytest.mark.parametrize(
    "expected",
    [Preface(bytes(16), 3, 1_000_000), Preface(PREFACE.topic_id, 4, 1_000_000), Preface(PREFACE.topic_id, 3, 0)],
)
def test_a_file_in_the_wrong_folder_is_noticed(expected: Preface) -> None:
    with pytest.raises(DamagedError, match="belongs elsewhere; found partition 3 from offset 1000000"):
        check_preface(GOLDEN_PREFACE, expected, where="here")


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_no_preface(data: bytes) -> None:
    with pytest.raises(DamagedError):
        check_preface(data, PREFACE, where="here")


@pytest.mark.parametrize("bodies", [True, False])
def test_a_scan_finds_every_frame_and_the_end(bodies: bool) -> None:
    found = scan(pa.py_buffer(WHOLE), start=FIRST_FRAME, next_offset=0, bodies=bodies)
    assert [position for position, _ in found.frames] == STARTS
    assert [header.base_offset for _, header in found.frames] == [0, 2, 52]
    assert (found.end_position, found.next_offset, found.problem) == (len(WHOLE), 54, None)


def test_a_scan_may_begin_anywhere_on_a_part_of_the_file() -> None:
    data = pa.py_buffer(WHOLE[STARTS[1] :])
    found = scan(data, start=STARTS[1], next_offset=2, data_start=STARTS[1])
    assert [position for position, _ in found.frames] == STARTS[1:]
    assert found.problem is None


@pytest.mark.parametrize("bodies", [True, False])
def test_a_scan_of_a_torn_file_ends_at_the_last_whole_frame(bodies: bool) -> None:
    ends = [*STARTS[1:], len(WHOLE)]
    for size in range(FIRST_FRAME, len(WHOLE)):
        found = scan(pa.py_buffer(WHOLE[:size]), start=FIRST_FRAME, next_offset=0, bodies=bodies)
        whole = sum(end <= size for end in ends)
        assert len(found.frames) == whole
        assert found.end_position == [*STARTS, len(WHOLE)][whole]
        if size in (FIRST_FRAME, *ends):
            assert found.problem is None
        else:
            assert found.problem is not None
            assert (found.problem.position, found.problem.offset) == (found.end_position, found.next_offset)


@pytest.mark.parametrize(("gaps", "read"), [(False, 1), (True, 2)])
def test_only_rewritten_segments_may_have_gaps(gaps: bool, read: int) -> None:
    data = pa.py_buffer(bytes(FIRST_FRAME) + frame(0) + frame(10))
    found = scan(data, start=FIRST_FRAME, next_offset=0, gaps=gaps)
    assert len(found.frames) == read
    assert gaps or (found.problem is not None and "offset 10 instead of 2" in found.problem.reason)


@pytest.mark.parametrize("gaps", [False, True])
def test_offsets_never_go_back(gaps: bool) -> None:
    data = pa.py_buffer(bytes(FIRST_FRAME) + frame(5) + frame(5))
    found = scan(data, start=FIRST_FRAME, next_offset=5, gaps=gaps)
    assert len(found.frames) == 1
    assert found.problem is not None
    assert "offset 5 instead of 7" in found.problem.reason


@given(st.binary(max_size=2_000), st.booleans(), st.booleans())
def test_scanning_arbitrary_bytes_finds_nothing_and_ends(data: bytes, gaps: bool, bodies: bool) -> None:
    found = scan(pa.py_buffer(data), start=0, next_offset=0, gaps=gaps, bodies=bodies)
    assert found.frames == []
    assert list(later_frames(pa.py_buffer(data), after=0)) == []


@given(st.randoms(use_true_random=False))
def test_scanning_mutated_frames_never_finds_a_frame_that_was_not_written(rng: random.Random) -> None:
    """Pieces are cut out, doubled, swapped and overwritten; what is found must be whole frames of the original."""
    data = bytearray(WHOLE)
    for _ in range(rng.randint(1, 4)):
        start, length = rng.randrange(len(data)), rng.choice([1, 64, 128, rng.randrange(1, 600)])
        piece = bytes(data[start : start + length])
        match rng.randrange(4):
            case 0:
                del data[start : start + length]
            case 1:
                data[start:start] = piece
            case 2:
                data[start : start + length] = rng.randbytes(len(piece))
            case 3:
                at = rng.randrange(len(data))
                data[at : at + length] = piece
        if not data:
            return
    found = scan(pa.py_buffer(bytes(data)), start=FIRST_FRAME, next_offset=0)
    expected = 0
    for position, header in found.frames:
        assert header.base_offset == expected
        expected = header.next_offset
        assert bytes(data[position : position + header.length]) in FRAMES


def test_later_frames_finds_what_stands_behind_damage() -> None:
    data = bytearray(WHOLE)
    data[STARTS[1] + 5] ^= 1
    found = list(later_frames(pa.py_buffer(bytes(data)), after=STARTS[1]))
    assert [(position, header.base_offset) for position, header in found] == [(STARTS[2], 52)]


@pytest.mark.parametrize("cut", [0, 1, 64, 100])
def test_later_frames_looks_at_a_part_of_the_file_too(cut: int) -> None:
    start = STARTS[1] - cut
    found = list(later_frames(pa.py_buffer(WHOLE[start:]), after=STARTS[1], data_start=start))
    assert [position for position, _ in found] == [STARTS[2]]


def test_a_scan_does_not_take_rows_for_frames() -> None:
    """A stored frame may hold the bytes of a frame, as a backup of a segment in a binary column does."""
    inner = frame(7)
    body = encode(pa.record_batch({"v": pa.array([inner], pa.binary())}), schema_id=1)
    outer = b"".join(bytes(memoryview(part)) for part in place(body, base_offset=0, append_time=0, synced=0))
    found = scan(pa.py_buffer(outer), start=0, next_offset=0)
    assert [header.base_offset for _, header in found.frames] == [0]
