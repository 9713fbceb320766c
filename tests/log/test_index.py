"""The index of a segment: its bytes on disk, what it answers, and that a bad one is thrown away."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log.frame import Header
from penstock.log.index import (
    INDEX_EVERY_BYTES,
    Entry,
    IndexBuilder,
    decode_entries,
    encode_entries,
    entry_at_offset,
    load_index,
    offset_before_append_time,
    offset_before_event_time,
)
from penstock.units import NO_TIME
from tests.log.simulated import SimulatedDisk

ENTRY = Entry(100, 64, 1_600_000_000_000_000, 1_700_000_000_000_000)
GOLDEN_ENTRY = bytes.fromhex("640000000000000040000000000000000000a40731af050000401e18240a06007a7716c900000000")
MEANINGLESS = range(36, 40)


def entries(*places: tuple[int, int, int, int]) -> list[Entry]:
    return [Entry(*place) for place in places]


SOME = entries((0, 64, NO_TIME, 10), (50, 70_000, 500, 20), (90, 140_000, 500, 20), (95, 300_000, 900, 40))


def test_the_stored_bytes_of_an_entry_have_not_changed() -> None:
    assert encode_entries([ENTRY]) == GOLDEN_ENTRY
    assert decode_entries(GOLDEN_ENTRY) == [ENTRY]


def test_entries_are_read_back_in_order() -> None:
    assert decode_entries(encode_entries(SOME)) == SOME
    assert decode_entries(b"") == []


def test_every_flipped_bit_makes_the_index_void_or_changes_nothing() -> None:
    raw = encode_entries(SOME)
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_entries(bytes(damaged)) == (SOME if bit // 8 % 40 in MEANINGLESS else None)


def test_an_entry_that_is_only_half_there_is_left_out() -> None:
    raw = encode_entries(SOME)
    for size in range(len(raw)):
        assert decode_entries(raw[:size]) == SOME[: size // 40]


@pytest.mark.parametrize("order", [(0, 2, 1), (0, 0), (1, 0)])
def test_entries_out_of_order_are_refused(order: tuple[int, ...]) -> None:
    assert decode_entries(encode_entries([SOME[at] for at in order])) is None


@given(st.binary(min_size=40, max_size=500))
@example(bytes(40))
@example(bytes(400))
def test_arbitrary_bytes_are_no_index(data: bytes) -> None:
    assert decode_entries(data) is None


def test_a_missing_index_and_a_damaged_one_are_both_none() -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("p"))
    assert load_index(disk, Path("p/a.index")) is None
    disk.open(Path("p/a.index"), create=True).write_at(0, [bytes(80)])
    assert load_index(disk, Path("p/a.index")) is None


@pytest.mark.parametrize(("offset", "found"), [(0, 0), (49, 0), (50, 50), (94, 90), (95, 95), (10_000, 95)])
def test_the_search_begins_at_the_last_entry_at_or_before_an_offset(offset: int, found: int) -> None:
    entry = entry_at_offset(SOME, offset)
    assert entry is not None
    assert entry.base_offset == found


def test_an_offset_before_all_entries_begins_at_the_start() -> None:
    assert entry_at_offset(SOME[1:], 49) is None
    assert entry_at_offset([], 0) is None


@pytest.mark.parametrize(("time", "found"), [(NO_TIME, None), (0, 0), (500, 0), (501, 90), (900, 90), (901, 95)])
def test_before_the_found_entry_every_event_is_older(time: int, found: int | None) -> None:
    assert offset_before_event_time(SOME, time) == found


@pytest.mark.parametrize(("time", "found"), [(0, None), (10, None), (11, 0), (20, 0), (21, 90), (40, 90), (41, 95)])
def test_the_found_entry_was_appended_before_the_time(time: int, found: int | None) -> None:
    assert offset_before_append_time(SOME, time) == found


HEADER = Header(
    length=192, body_crc=0, flags=0, base_offset=0, last_offset=0, rows=1, schema_id=1, body_length=1, epoch=0,
    producer=0, sequence=-1, transaction=0, append_time=0, min_time=NO_TIME, max_time=NO_TIME, synced=0,
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 3), st.integers(0, 1_000)), max_size=40))
def test_the_entries_follow_from_the_frames_alone(frames: list[tuple[int, int, int]]) -> None:
    """However the frames come, in one piece or many, the same ones get an entry, so several writers agree."""
    placed: list[tuple[int, Header]] = []
    position, offset = 64, 0
    for length, rows, time in frames:
        header = HEADER._replace(base_offset=offset, rows=rows, max_time=time if rows else NO_TIME, append_time=offset)
        placed.append((position, header))
        position, offset = position + length, offset + rows
    at_once = IndexBuilder(max_time=7).entries_for(placed)
    builder = IndexBuilder(max_time=7)
    assert [entry for one in placed for entry in builder.entries_for([one])] == at_once
    gaps = [later.position - earlier.position for earlier, later in pairwise(at_once)]
    assert all(gap >= INDEX_EVERY_BYTES for gap in gaps)
    for entry in at_once:
        before = [header.max_time for place, header in placed if place < entry.position]
        assert entry.max_time == max([7, *before])
    assert decode_entries(encode_entries(at_once)) == at_once
