"""The versions of keys: how many events each key has had, for conditional appends.

Kept as sorted runs of numpy arrays: a lookup is a binary search per run, and runs merge as they grow, so a million keys
cost tens of megabytes and no Python object each. Keys are told apart by two 64-bit hashes. Everything here can be
rebuilt from the rows, which carry their version; the copy on disk only saves the time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from penstock.storage.files import Files, write_durably

VERSIONS_NAME = "versions"
# Single events collect here before they become a run.
LOOSE_KEYS = 16_384
LOOSE_ROWS = 64
_PREFACE = struct.Struct("<8sqqqI4x")
_MAGIC = b"PSVERS1\0"

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of some rows, each as two independent hashes."""

    first: Hashes
    second: Hashes

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: npt.NDArray[np.intp]) -> Keys:
        return Keys(self.first[rows], self.second[rows])


@dataclass(frozen=True, slots=True)
class _Run:
    """Distinct keys in the order of their first hash, with the last version of each."""

    keys: Keys
    versions: Numbers

    def lookup(self, keys: Keys) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        at = np.searchsorted(self.keys.first, keys.first)
        versions = np.zeros(len(keys), dtype=np.int64)
        found = np.zeros(len(keys), dtype=np.bool_)
        # Keys that share a first hash stand side by side; nearly always one look decides.
        looking = np.flatnonzero(at < len(self.keys))
        while len(looking):
            same_first = self.keys.first[at[looking]] == keys.first[looking]
            looking = looking[same_first]
            hit = self.keys.second[at[looking]] == keys.second[looking]
            versions[looking[hit]] = self.versions[at[looking[hit]]]
            found[looking[hit]] = True
            looking = looking[~hit]
            at[looking] += 1
            looking = looking[at[looking] < len(self.keys)]
        return versions, found


class KeyVersions:
    """The last version of every key of one partition, up to (and without) `next_offset`."""

    def __init__(self, *, rewrites: int, next_offset: int = 0) -> None:
        self.rewrites = rewrites
        self.next_offset = next_offset
        self._runs: list[_Run] = []
        self._loose: dict[tuple[int, int], int] = {}

    def lookup(self, keys: Keys) -> Numbers:
        """The last version of each key; 0 where it has had no event."""
        versions = np.zeros(len(keys), dtype=np.int64)
        open_rows = np.arange(len(keys))
        if self._loose:
            pairs = zip(keys.first.tolist(), keys.second.tolist(), strict=True)
            loose = np.fromiter((self._loose.get(pair, 0) for pair in pairs), dtype=np.int64, count=len(keys))
            versions, open_rows = loose, np.flatnonzero(loose == 0)
        for run in reversed(self._runs):
            if not len(open_rows):
                break
            values, found = run.lookup(keys.take(open_rows))
            versions[open_rows[found]] = values[found]
            open_rows = open_rows[~found]
        return versions

    def number(self, keys: Keys) -> Numbers:
        """The versions that rows with these keys get if they are appended next, in this order."""
        if len(keys) == 1:
            return self.lookup(keys) + 1
        order = np.lexsort((keys.second, keys.first))
        ordered = keys.take(order)
        starts = _group_starts(ordered)
        group = np.cumsum(starts) - 1
        first_rows = np.flatnonzero(starts)
        last = self.lookup(ordered.take(first_rows))
        numbered = np.empty(len(keys), dtype=np.int64)
        numbered[order] = last[group] + (np.arange(len(keys)) - first_rows[group]) + 1
        return numbered

    def store(self, keys: Keys, versions: Numbers, *, next_offset: int) -> None:
        """Remember the versions of appended rows."""
        self.next_offset = next_offset
        if len(keys) < LOOSE_ROWS:
            for first, second, version in zip(
                keys.first.tolist(), keys.second.tolist(), versions.tolist(), strict=True
            ):
                self._loose[(first, second)] = version
            if len(self._loose) < LOOSE_KEYS:
                return
            keys, versions = Keys(np.empty(0, np.uint64), np.empty(0, np.uint64)), np.empty(0, np.int64)
        self._settle_loose()
        if len(keys):
            self._add(_newest(keys, versions))

    def __len__(self) -> int:
        self._settle_loose()
        self._merge_all()
        return len(self._runs[0].keys) if self._runs else 0

    def save(self, files: Files, directory: Path) -> None:
        self._settle_loose()
        self._merge_all()
        run = self._runs[0] if self._runs else _newest(*_nothing())
        arrays = run.keys.first.tobytes() + run.keys.second.tobytes() + run.versions.tobytes()
        crc = _checksum(self.rewrites, self.next_offset, arrays)
        preface = _PREFACE.pack(_MAGIC, self.rewrites, self.next_offset, len(run.keys), crc)
        write_durably(files, directory / VERSIONS_NAME, preface + arrays)

    @staticmethod
    def load(files: Files, directory: Path, *, rewrites: int) -> KeyVersions:
        """The saved versions, or none at all when they are missing, damaged or from before a rewrite."""
        empty = KeyVersions(rewrites=rewrites)
        try:
            raw = files.read(directory / VERSIONS_NAME)
            magic, saved_rewrites, next_offset, count, crc = _PREFACE.unpack_from(raw)
        except (FileNotFoundError, struct.error):
            return empty
        arrays = memoryview(raw)[_PREFACE.size :]
        whole = len(arrays) == 24 * count and crc == _checksum(saved_rewrites, next_offset, arrays)
        if magic != _MAGIC or saved_rewrites != rewrites or not whole:
            return empty
        first = np.frombuffer(arrays, dtype=np.uint64, count=count)
        second = np.frombuffer(arrays, dtype=np.uint64, count=count, offset=8 * count)
        versions = np.frombuffer(arrays, dtype=np.int64, count=count, offset=16 * count)
        loaded = KeyVersions(rewrites=rewrites, next_offset=next_offset)
        if count:
            loaded._runs = [_Run(Keys(first, second), versions)]
        return loaded

    def _settle_loose(self) -> None:
        if self._loose:
            pairs = np.array(list(self._loose), dtype=np.uint64)
            versions = np.fromiter(self._loose.values(), dtype=np.int64, count=len(self._loose))
            self._loose = {}
            self._add(_newest(Keys(pairs[:, 0], pairs[:, 1]), versions))

    def _add(self, run: _Run) -> None:
        """Geometric merging: every run is more than twice as long as the next."""
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2].keys) <= 2 * len(self._runs[-1].keys):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merge_runs(older, newer))

    def _merge_all(self) -> None:
        while len(self._runs) > 1:
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merge_runs(older, newer))


def _checksum(rewrites: int, next_offset: int, arrays: bytes | memoryview) -> int:
    return int(crc32c(arrays, crc32c(struct.pack("<qq", rewrites, next_offset))))


def _nothing() -> tuple[Keys, Numbers]:
    return Keys(np.empty(0, np.uint64), np.empty(0, np.uint64)), np.empty(0, np.int64)


def _merge_runs(older: _Run, newer: _Run) -> _Run:
    keys = Keys(
        np.concatenate([older.keys.first, newer.keys.first]), np.concatenate([older.keys.second, newer.keys.second])
    )
    return _newest(keys, np.concatenate([older.versions, newer.versions]))


def _newest(keys: Keys, versions: Numbers) -> _Run:
    """One entry per key, with its last version. The versions of a key come in ascending order.

    A stable sort by the first hash keeps that order and is several times faster than sorting by all three; only where
    different keys share a first hash are they sorted by both.
    """
    order = np.argsort(keys.first, kind="stable")
    ordered = keys.take(order)
    starts = _group_starts(ordered)
    if np.any(starts[1:] & (ordered.first[1:] == ordered.first[:-1])):
        order = np.lexsort((keys.second, keys.first))
        ordered = keys.take(order)
        starts = _group_starts(ordered)
    lasts = np.flatnonzero(np.append(starts[1:], True)) if len(order) else order
    return _Run(ordered.take(lasts), versions[order[lasts]])


def _group_starts(ordered: Keys) -> npt.NDArray[np.bool_]:
    starts = np.ones(len(ordered), dtype=np.bool_)
    starts[1:] = (ordered.first[1:] != ordered.first[:-1]) | (ordered.second[1:] != ordered.second[:-1])
    return starts
