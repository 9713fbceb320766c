"""How much lies between two offsets of a partition, in rows and in bytes, without reading the rows.

Rows are counted by offsets where none were removed, and by the headers of frames elsewhere. Bytes come from the indexes
of segments, which have an entry about every 64 KiB: they are estimates.
"""

from __future__ import annotations

import numpy as np

from penstock.contracts import Extent
from penstock.log.index import load_index
from penstock.log.partition import Partition
from penstock.log.topic_files import TopicFiles


def row_extent(files: TopicFiles, number: int, span: tuple[int, int], limit: int | None) -> Extent:
    """How many rows lie before each offset, at least up to `limit` of them.

    Offsets tell it where no row was removed. Elsewhere they may run far ahead of the rows: frames have to be counted.
    """
    start, end = span
    if start >= _dense_from(files.partition(number)):
        return Extent(np.array([start, end]), np.array([0, end - start]))
    offsets, rows = [np.array([start])], [np.array([0])]
    for headers in files.headers(number, start, end):
        offsets.append(np.minimum(headers["last_offset"] + 1, end))
        rows.append(rows[-1][-1] + np.cumsum(headers["rows"], dtype=np.int64))
        if limit is not None and rows[-1][-1] >= limit:
            return Extent(np.concatenate(offsets), np.concatenate(rows))
    if len(offsets) == 1:
        return Extent(np.array([start, end]), np.array([0, 0]))
    offsets[-1][-1] = end  # behind the last frame there is nothing
    return Extent(np.concatenate(offsets), np.concatenate(rows))


def _dense_from(partition: Partition) -> int:
    """The offset from which on no row was removed: every offset up to the end has one."""
    manifest = partition.manifest(partition.tail().generation)
    dense = manifest.active.base_offset
    for segment in reversed(manifest.closed):
        if segment.rewritten or segment.end_offset != dense:
            break
        dense = segment.base_offset
    return dense


def byte_extent(partition: Partition, span: tuple[int, int], limit: int | None) -> Extent:
    """About how many bytes lie before some offsets, in the segments that hold the span."""
    start, end = span
    end = end if limit is None else _end_within(partition, start, end, limit)
    tail = partition.tail()
    manifest = partition.manifest(tail.generation)
    offsets, sizes, before, last = [0], [0], 0, 0
    for segment in manifest.segments:
        closed = segment is not manifest.active
        segment_end = segment.end_offset if closed else tail.end_offset
        if segment_end <= start or segment.base_offset >= end:
            continue
        entries = load_index(partition.files, partition.directory / segment.index_name) or []
        offsets += [segment.base_offset, *(entry.base_offset for entry in entries)]
        sizes += [before, *(before + entry.position for entry in entries)]
        before += segment.bytes if closed else tail.end_position
        last = segment_end
    return _growing([*offsets, last], [*sizes, before])


def _end_within(partition: Partition, start: int, end: int, limit: int) -> int:
    """An offset before `end` that is surely `limit` bytes away: a long backlog need not be measured whole."""
    found = 0
    for segment in partition.manifest(partition.tail().generation).closed:
        if segment.base_offset > start:
            found += segment.bytes
        if found >= limit and segment.end_offset > start:
            return min(end, segment.end_offset)
    return end


def _growing(offsets: list[int], sizes: list[int]) -> Extent:
    """Without marks that do not lie behind the one before: an index may speak of more than is visible."""
    ahead = np.array(offsets, dtype=np.int64)
    keep = np.ones(len(ahead), dtype=np.bool_)
    keep[:-1] = ahead[:-1] < np.minimum.accumulate(ahead[::-1])[::-1][1:]
    return Extent(ahead[keep], np.array(sizes, dtype=np.int64)[keep])
