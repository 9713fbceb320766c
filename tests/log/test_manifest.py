"""The manifest: which segments there are, and that a damaged one is never believed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DamagedError, DeclarationError, PenstockError
from penstock.log.manifest import Manifest, Segment, load_manifest, segment_name, store_manifest
from tests.log.simulated import Fault, SimulatedCrash, SimulatedDisk

FOLDER = Path("p")
CLOSED = Segment("a.segment", 0, 50, 4_096, 50, 1_600, 1_700)
ACTIVE = Segment("b.segment", 50, max_time=1_600)
MANIFEST = Manifest(generation=7, start_offset=10, segments=(CLOSED, ACTIVE), rewrites=2, topic="ab" * 16, partition=3)


def fresh_disk(content: bytes | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    if content is not None:
        disk.open(FOLDER / "manifest.json", create=True).write_at(0, [content])
    return disk


def stored() -> bytes:
    disk = fresh_disk()
    store_manifest(disk, FOLDER, MANIFEST)
    return disk.read(FOLDER / "manifest.json")


def test_a_manifest_is_read_back() -> None:
    assert load_manifest(fresh_disk(stored()), FOLDER) == MANIFEST


def test_the_stored_fields_have_not_changed() -> None:
    document = json.loads(stored())
    assert document["content"] == {
        "format": 1,
        "generation": 7,
        "start_offset": 10,
        "rewrites": 2,
        "topic": "ab" * 16,
        "partition": 3,
        "segments": [
            {
                "name": "a.segment",
                "base_offset": 0,
                "end_offset": 50,
                "bytes": 4096,
                "rows": 50,
                "max_time": 1600,
                "append_time": 1700,
                "rewritten": False,
            },
            {
                "name": "b.segment",
                "base_offset": 50,
                "end_offset": 0,
                "bytes": 0,
                "rows": 0,
                "max_time": 1600,
                "append_time": 0,
                "rewritten": False,
            },
        ],
    }
    assert document["crc32c"] == crc32c(json.dumps(document["content"], sort_keys=True).encode())


def test_every_flipped_bit_is_refused_or_harmless() -> None:
    whole = stored()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = load_manifest(fresh_disk(bytes(damaged)), FOLDER)
        except DamagedError:
            continue
        assert found == MANIFEST


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_arbitrary_content_is_damage(content: bytes) -> None:
    with pytest.raises(DamagedError, match=r"manifest\.json"):
        load_manifest(fresh_disk(content), FOLDER)


@pytest.mark.parametrize("size", [0, 1, 50, 400])
def test_a_short_manifest_is_damage(size: int) -> None:
    with pytest.raises(DamagedError, match=r"manifest\.json"):
        load_manifest(fresh_disk(stored()[:size]), FOLDER)


def test_a_missing_manifest_is_damage() -> None:
    with pytest.raises(DamagedError, match=r"manifest\.json.*missing"):
        load_manifest(fresh_disk(), FOLDER)


def test_a_manifest_of_a_later_format_is_not_called_damaged() -> None:
    content = json.loads(stored())["content"] | {"format": 2}
    checksum = crc32c(json.dumps(content, sort_keys=True).encode())
    disk = fresh_disk(json.dumps({"content": content, "crc32c": checksum}).encode())
    with pytest.raises(DeclarationError, match="format 2; this version of Penstock reads format 1"):
        load_manifest(disk, FOLDER)


def test_replacing_a_manifest_leaves_the_old_or_the_new_wherever_the_power_goes() -> None:
    newer = MANIFEST.with_segments((ACTIVE,), start_offset=50)
    for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
        for operation in range(6):
            for seed in range(20):
                disk = fresh_disk()
                store_manifest(disk, FOLDER, MANIFEST)
                disk.fail(operation, fault)
                done = False
                try:
                    store_manifest(disk, FOLDER, newer)
                    done = True
                except SimulatedCrash:
                    pass
                after = load_manifest(disk.crash(random.Random(seed)), FOLDER)
                assert after == newer if done else after in (MANIFEST, newer)


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.BROKEN])
def test_a_failed_replacement_raises_and_leaves_the_old_or_the_new(fault: Fault) -> None:
    newer = MANIFEST.with_segments((ACTIVE,), start_offset=50)
    for operation in range(5):
        disk = fresh_disk()
        store_manifest(disk, FOLDER, MANIFEST)
        disk.fail(operation, fault)
        with pytest.raises((OSError, PenstockError)):
            store_manifest(disk, FOLDER, newer)
        assert load_manifest(disk, FOLDER) in (MANIFEST, newer)


def test_a_change_raises_the_generation_and_a_rewrite_is_counted() -> None:
    changed = MANIFEST.with_segments((ACTIVE,), start_offset=50)
    assert (changed.generation, changed.start_offset, changed.rewrites) == (8, 50, 2)
    rewritten = MANIFEST.with_segments((CLOSED, ACTIVE), rewritten=True)
    assert (rewritten.generation, rewritten.start_offset, rewritten.rewrites) == (8, 10, 3)


def test_the_last_segment_is_the_active_one() -> None:
    assert MANIFEST.active is ACTIVE
    assert MANIFEST.closed == (CLOSED,)


@pytest.mark.parametrize(("offset", "found"), [(0, 0), (49, 0), (50, 1), (1_000, 1)])
def test_reading_begins_in_the_segment_that_holds_the_offset(offset: int, found: int) -> None:
    assert MANIFEST.segment_of(offset) == found


def test_reading_before_the_first_kept_row_begins_in_the_first_segment() -> None:
    compacted = Manifest(1, 0, (Segment("c.segment", 30, 50, rewritten=True), ACTIVE))
    assert compacted.segment_of(3) == 0


def test_names_sort_by_offset_and_are_never_used_twice() -> None:
    names = [segment_name(5, 1), segment_name(5, 2), segment_name(40, 2), segment_name(1_000, 3)]
    assert names == sorted(names)
    assert len(set(names)) == 4
    assert Segment(names[0], 5).index_name == "00000000000000000005-000001.index"
