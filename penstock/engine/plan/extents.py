"""How much lies between two offsets, and where to cut: splits for tasks, and ends of epochs and micro-batches.

A topic that measures its extents is asked. The rows of any other topic are read, as far as the limit goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from penstock.contracts import Batch, Extent, MeasuresExtents, Topic

MEBIBYTE = 1024 * 1024
# Bounds, chosen and not measured: a task costs Spark something whatever it does, and a few large ones end unevenly.
LEAST_SPLIT_BYTES = 4 * MEBIBYTE
MOST_SPLIT_BYTES = 32 * MEBIBYTE
# How many splits a read is cut into where their size allows it.
SPLITS = 16


def row_extent(topic: Topic, partition: int, start: int, end: int, limit: int | None = None) -> Extent:
    """How many rows lie before some offsets between `start` and `end`; no further than where `limit` is exceeded."""
    if isinstance(topic, MeasuresExtents):
        return topic.row_extent(partition, start, end, limit=limit)
    return _measure(topic, partition, (start, end), limit, len)


def byte_extent(topic: Topic, partition: int, start: int, end: int, limit: int | None = None) -> Extent:
    """About how many bytes lie before some offsets between `start` and `end`, likewise."""
    if isinstance(topic, MeasuresExtents):
        return topic.byte_extent(partition, start, end, limit=limit)
    return _measure(topic, partition, (start, end), limit, lambda batch: batch.rows.nbytes)


def _measure(
    topic: Topic, partition: int, span: tuple[int, int], limit: int | None, size_of: Callable[[Batch], int]
) -> Extent:
    start, end = span
    offsets, sizes = [start], [0]
    for batch in topic.batches({partition: start}, until={partition: end}):
        offsets.append(batch.next_offset)
        sizes.append(sizes[-1] + size_of(batch))
        if limit is not None and sizes[-1] >= limit:
            return Extent(np.array(offsets), np.array(sizes))
    if offsets[-1] < end:  # behind the last row there is nothing
        offsets.append(end)
        sizes.append(sizes[-1])
    return Extent(np.array(offsets), np.array(sizes))


def size_between(extent: Extent, start: int, end: int) -> int:
    first, last = np.interp([start, end], extent.offsets, extent.sizes)
    return max(0, int(last - first))


def offset_after(extent: Extent, start: int, size: int) -> int:
    """The offset about `size` behind `start`."""
    before = float(np.interp(start, extent.offsets, extent.sizes))
    return int(np.interp(before + size, extent.sizes, extent.offsets))


def cuts(extent: Extent, start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Ranges of about `size` that make up `start` to `end`. They begin at offsets of the extent where one is near."""
    count = max(1, round(size_between(extent, start, end) / size))
    ideal = [offset_after(extent, start, size * number) for number in range(1, count)]
    inner = {cut for cut in (_near_mark(extent, offset, size // 4) for offset in ideal) if start < cut < end}
    return list(pairwise([start, *sorted(inner), end]))


def _near_mark(extent: Extent, offset: int, most: int) -> int:
    after = int(np.searchsorted(extent.offsets, offset))
    near = extent.offsets[max(0, after - 1) : after + 1].tolist()
    nearest: int = min(near, key=lambda mark: _distance(extent, mark, offset), default=offset)
    return nearest if _distance(extent, nearest, offset) <= most else offset


def _distance(extent: Extent, left: int, right: int) -> int:
    return size_between(extent, min(left, right), max(left, right))


def split_size(total: int) -> int:
    """How large splits are when this many bytes are to be read."""
    return max(LEAST_SPLIT_BYTES, min(MOST_SPLIT_BYTES, total // SPLITS))


def shares(available: Mapping[int, int], limit: int) -> dict[int, int]:
    """Deal `limit` out evenly: nobody gets more than is available, and what one leaves goes to the others.

    With less than one for each, it goes to those with the most, so everybody has a turn in the end.
    """
    dealt = {}
    remaining = limit
    smallest_first = sorted(available, key=lambda taker: available[taker])
    for done, taker in enumerate(smallest_first):
        dealt[taker] = min(available[taker], remaining // (len(smallest_first) - done))
        remaining -= dealt[taker]
    return dealt
