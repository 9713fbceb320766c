"""How much lies between two offsets, and where to cut: splits for tasks, and ends of micro-batches.

Bytes come from the segments' indexes, which know about every 64 KiB, and are spread evenly over the rows between two
entries. They are estimates: nothing is wrong if they are, only less even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from penstock.log.index import load_index
from penstock.log.partition import Partition

MEBIBYTE = 1024 * 1024
# Bounds, chosen and not measured: a task costs Spark something whatever it does, and a few large ones end unevenly.
LEAST_SPLIT_BYTES = 4 * MEBIBYTE
MOST_SPLIT_BYTES = 32 * MEBIBYTE
# How many splits a read is cut into where their size allows it.
SPLITS = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition's offsets and the bytes before each, at frames the index knows; both grow."""

    offsets: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]

    def bytes_between(self, start: int, end: int) -> int:
        first, last = np.interp([start, end], self.offsets, self.bytes)
        return max(0, int(last - first))

    def offset_after(self, start: int, count: int) -> int:
        """The offset about `count` bytes behind `start`."""
        before = float(np.interp(start, self.offsets, self.bytes))
        return int(np.interp(before + count, self.bytes, self.offsets))

    def cuts(self, start: int, end: int, size: int) -> list[tuple[int, int]]:
        """Ranges of about `size` bytes that make up `start` to `end`, beginning with frames where one is near."""
        count = max(1, round(self.bytes_between(start, end) / size))
        ideal = [self.offset_after(start, size * number) for number in range(1, count)]
        inner = {cut for cut in (self._near_frame(offset, size // 4) for offset in ideal) if start < cut < end}
        bounds = [start, *sorted(inner), end]
        return list(pairwise(bounds))

    def _near_frame(self, offset: int, most: int) -> int:
        after = int(np.searchsorted(self.offsets, offset))
        near = self.offsets[max(0, after - 1) : after + 1]
        nearest = min((int(one) for one in near), key=lambda one: self._distance(one, offset), default=offset)
        return nearest if self._distance(nearest, offset) <= most else offset

    def _distance(self, one: int, other: int) -> int:
        return self.bytes_between(min(one, other), max(one, other))


def extent_of(partition: Partition, start: int, end: int) -> Extent:
    """The extent of the segments that hold `start` to `end`."""
    tail = partition.tail()
    manifest = partition.manifest(tail.generation)
    offsets, positions, before, last = [0], [0], 0, 0
    for segment in manifest.segments:
        closed = segment is not manifest.active
        segment_end = segment.end_offset if closed else tail.end_offset
        if segment_end <= start or segment.base_offset >= end:
            continue
        entries = load_index(partition.files, partition.directory / segment.index_name) or []
        offsets += [segment.base_offset, *(entry.base_offset for entry in entries)]
        positions += [before, *(before + entry.position for entry in entries)]
        before += segment.bytes if closed else tail.end_position
        last = segment_end
    return _growing([*offsets, last], [*positions, before])


def _growing(offsets: list[int], positions: list[int]) -> Extent:
    """Without marks that do not lie behind the one before: an index may speak of more than is visible."""
    ahead = np.array(offsets, dtype=np.int64)
    keep = np.ones(len(ahead), dtype=np.bool_)
    keep[:-1] = ahead[:-1] < np.minimum.accumulate(ahead[::-1])[::-1][1:]
    return Extent(ahead[keep], np.array(positions, dtype=np.int64)[keep])


def split_size(total: int) -> int:
    """How large splits are when this many bytes are to be read."""
    return max(LEAST_SPLIT_BYTES, min(MOST_SPLIT_BYTES, total // SPLITS))


def shares(available: Mapping[int, int], limit: int) -> dict[int, int]:
    """Deal `limit` out evenly: nobody gets more than is available, and what one leaves goes to the others.

    With less than one for each, it goes to those with the most, so everybody has a turn in the end.
    """
    dealt = {}
    left = limit
    smallest_first = sorted(available, key=lambda one: available[one])
    for done, one in enumerate(smallest_first):
        dealt[one] = min(available[one], left // (len(smallest_first) - done))
        left -= dealt[one]
    return dealt
