"""The tail record: its bytes on disk, and that nothing else is taken for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log.tail import TAIL_BYTES, Tail, TailFile, decode_tail, encode_tail
from tests.log.simulated import SECTOR, SimulatedDisk

TAIL = Tail(bytes(range(16)), 5, 100, 4096, 250, 2048, 200, 1_700_000_000_000_000, 1_600_000_000_000_000, 77, 8192, 300)
GOLDEN_TAIL = bytes.fromhex(
    "50535431000102030405060708090a0b0c0d0e0f050000000000000064000000000000000010000000000000fa00000000000000"
    "0008000000000000c80000000000000000401e18240a06000000a40731af05004d0000000000000000200000000000002c010000"
    "000000000000000000000000000000000000000048b10a62"
)
NUMBER = st.integers(-(2**63), 2**63 - 1)


def test_the_stored_bytes_of_a_tail_have_not_changed() -> None:
    assert encode_tail(TAIL) == GOLDEN_TAIL
    assert decode_tail(GOLDEN_TAIL) == TAIL


def test_a_tail_lies_within_one_sector_so_that_it_is_written_whole_or_not_at_all() -> None:
    assert SECTOR % TAIL_BYTES == 0
    assert len(GOLDEN_TAIL) == TAIL_BYTES


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.lists(NUMBER, min_size=7, max_size=7),
    st.integers(0, 2**64 - 1),
    st.lists(NUMBER, min_size=2, max_size=2),
)
def test_any_tail_is_read_back(boot: bytes, generation: int, ends: list[int], pending: int, after: list[int]) -> None:
    tail = Tail(boot, generation, *ends, pending, *after)
    assert decode_tail(encode_tail(tail)) == tail


def test_every_flipped_bit_makes_the_record_void() -> None:
    for bit in range(8 * TAIL_BYTES):
        damaged = bytearray(GOLDEN_TAIL)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_tail(bytes(damaged)) is None


@given(st.binary(max_size=300) | st.binary(min_size=TAIL_BYTES, max_size=TAIL_BYTES))
@example(b"")
@example(bytes(TAIL_BYTES))
@example(GOLDEN_TAIL[:-1])
@example(GOLDEN_TAIL + b"\0")
@example(b"PST2" + GOLDEN_TAIL[4:])
def test_arbitrary_bytes_are_no_tail(data: bytes) -> None:
    assert decode_tail(data) is None


@pytest.mark.parametrize("size", [0, 1, 127])
def test_a_short_tail_file_reads_as_none(size: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("p"))
    file = TailFile(disk, Path("p"), create=True)
    assert file.read() is None
    stored = file.write(TAIL)
    assert file.read() == stored == replace(TAIL, number=1)
    disk.open(Path("p/tail")).truncate(size)
    assert file.read() is None
