from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.versions import VERSIONS_NAME, Keys, KeyVersions
from penstock.storage.files import Disk

# Few different values, so that keys often share their first hash and differ in the second.
KEY = st.tuples(st.integers(0, 4), st.integers(0, 3))
BATCHES = st.lists(st.lists(KEY, min_size=1, max_size=150), max_size=8)


def keys(pairs: list[tuple[int, int]]) -> Keys:
    array = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    return Keys(np.ascontiguousarray(array[:, 0]), np.ascontiguousarray(array[:, 1]))


@given(BATCHES)
def test_versions_are_those_of_a_dict(batches: list[list[tuple[int, int]]]) -> None:
    versions, model = KeyVersions(rewrites=0), defaultdict(int)
    offset = 0
    for batch in batches:
        expected = []
        for pair in batch:
            model[pair] += 1
            expected.append(model[pair])
        numbers = versions.number(keys(batch))
        assert numbers.tolist() == expected
        offset += len(batch)
        versions.store(keys(batch), numbers, next_offset=offset)
    everything = [(first, second) for first in range(6) for second in range(5)]
    assert versions.lookup(keys(everything)).tolist() == [model[pair] for pair in everything]
    assert len(versions) == len([pair for pair in model if model[pair]])


def test_saved_versions_are_loaded(tmp_path: Path) -> None:
    versions = KeyVersions(rewrites=3)
    versions.store(keys([(1, 1), (2, 2), (1, 1)]), np.array([1, 1, 2]), next_offset=3)
    versions.save(Disk(), tmp_path)
    loaded = KeyVersions.load(Disk(), tmp_path, rewrites=3)
    assert loaded.next_offset == 3
    assert loaded.lookup(keys([(1, 1), (2, 2), (3, 3)])).tolist() == [2, 1, 0]


def test_versions_from_before_a_rewrite_are_not_believed(tmp_path: Path) -> None:
    versions = KeyVersions(rewrites=3)
    versions.store(keys([(1, 1)]), np.array([1]), next_offset=1)
    versions.save(Disk(), tmp_path)
    assert KeyVersions.load(Disk(), tmp_path, rewrites=4).next_offset == 0


def test_versions_with_any_flipped_bit_are_not_believed(tmp_path: Path) -> None:
    versions = KeyVersions(rewrites=0)
    versions.store(keys([(1, 1), (2, 2)]), np.array([1, 1]), next_offset=2)
    versions.save(Disk(), tmp_path)
    whole = (tmp_path / VERSIONS_NAME).read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / VERSIONS_NAME).write_bytes(flipped)
        loaded = KeyVersions.load(Disk(), tmp_path, rewrites=0)
        assert loaded.next_offset == 0 or flipped[:36] + flipped[40:] == whole[:36] + whole[40:]


def test_a_million_keys_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    many = Keys(rng.integers(0, 2**63, 1_000_000, dtype=np.uint64), rng.integers(0, 2**63, 1_000_000, dtype=np.uint64))
    versions = KeyVersions(rewrites=0)
    for start in range(0, 1_000_000, 50_000):
        part = Keys(many.first[start : start + 50_000], many.second[start : start + 50_000])
        versions.store(part, versions.number(part), next_offset=start + 50_000)
    assert versions.lookup(many).tolist() == [1] * 1_000_000
    versions.save(Disk(), tmp_path)
    assert len(KeyVersions.load(Disk(), tmp_path, rewrites=0)) == 1_000_000
