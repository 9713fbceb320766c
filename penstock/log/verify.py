"""Checking every byte of a partition, and counting what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.log.index import load_index
from penstock.log.manifest import Manifest, Segment
from penstock.log.partition import Partition
from penstock.log.reader import damage_at
from penstock.log.rewrite import Progress
from penstock.log.segment import FIRST_FRAME, Scan, scan
from penstock.log.tail import Tail
from penstock.units import NO_TIME


@dataclass(slots=True)
class Verified:
    """What was found in one partition. Without problems, every byte is as it was written."""

    partition: int
    segments: int = 0
    frames: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The size and range of one partition. Times are microseconds since 1970, None where there are none."""

    partition: int
    start_offset: int
    end_offset: int
    rows: int
    bytes: int
    segments: int
    max_time: int | None
    append_time: int | None


def verify_partition(partition: Partition, progress: Progress = lambda count: None) -> Verified:
    """Check prefaces, headers, bodies, order, sizes and indexes of everything visible. `progress` is told of bytes."""
    verified = Verified(partition.number)
    try:
        tail = partition.tail()
        manifest = partition.manifest(tail.generation)
    except PenstockError as error:
        verified.problems.append(error.message)
        return verified
    for segment in manifest.segments:
        try:
            _verify_segment(partition, manifest, segment, tail, verified)
        except PenstockError as error:
            verified.problems.append(error.message)
        progress(_visible_bytes(manifest, segment, tail))
    return verified


def _visible_bytes(manifest: Manifest, segment: Segment, tail: Tail) -> int:
    if segment is not manifest.active:
        return segment.bytes
    # A roll may have come as far as the manifest and not yet to the tail: then nothing in the new segment is visible.
    return tail.end_position if tail.active_base == segment.base_offset else FIRST_FRAME


def _verify_segment(partition: Partition, manifest: Manifest, segment: Segment, tail: Tail, verified: Verified) -> None:
    file = partition.open_segment(segment)
    try:
        limit = _visible_bytes(manifest, segment, tail)
        data = file.view(0, min(limit, file.size()))
        found = scan(data, start=FIRST_FRAME, next_offset=segment.base_offset, gaps=segment.rewritten)
        verified.segments += 1
        verified.frames += len(found.frames)
        verified.rows += sum(header.rows for _, header in found.frames)
        verified.bytes += data.size
        if found.problem or data.size < limit:
            position = found.problem.position if found.problem else data.size
            offset = found.problem.offset if found.problem else found.next_offset
            reason = found.problem.reason if found.problem else f"the file ends {limit - data.size} bytes early"
            raise damage_at(partition, segment, file, position=position, offset=offset, reason=reason)
        if segment is not manifest.active:
            _verify_index(partition, segment, found, verified)
    finally:
        file.close()


def _verify_index(partition: Partition, segment: Segment, found: Scan, verified: Verified) -> None:
    """An index that is wrong only costs time, but somebody should know. That of the active segment is never synced."""
    path = partition.directory / segment.index_name
    if not partition.files.exists(path):
        return
    entries = load_index(partition.files, path)
    places = {position: header.base_offset for position, header in found.frames}
    if entries is None or any(places.get(entry.position) != entry.base_offset for entry in entries):
        verified.problems.append(f"{partition.where}: index {segment.index_name} does not match its segment")


def partition_statistics(partition: Partition) -> Statistics:
    tail = partition.tail()
    manifest = partition.manifest(tail.generation)
    return Statistics(
        partition.number,
        manifest.start_offset,
        tail.end_offset,
        sum(segment.rows for segment in manifest.closed) + tail.end_offset - manifest.active.base_offset,
        sum(_visible_bytes(manifest, segment, tail) for segment in manifest.segments),
        len(manifest.segments),
        None if tail.max_time == NO_TIME else tail.max_time,
        tail.append_time or None,
    )
