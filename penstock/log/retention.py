"""Which old segments a topic lets go. Whole segments only; the active one always stays, and what is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.log.holds import Held
from penstock.log.manifest import Manifest, Segment


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a partition is kept: by the age of its last append, by bytes, or for ever."""

    seconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """How many segments retention let go, and how many it had to leave because of whom."""

    segments: int
    held_segments: int = 0
    held_by: tuple[str, ...] = ()


def count_expired(segments: Sequence[Segment], retention: Retention, *, now: int) -> int:
    """How many segments at the front may go. `now` is in microseconds; the last segment is the active one."""
    closed = segments[:-1]
    gone = 0
    if retention.seconds is not None:
        oldest = now - int(retention.seconds * 1_000_000)
        while gone < len(closed) and closed[gone].append_time < oldest:
            gone += 1
    if retention.bytes is not None:
        kept = sum(segment.bytes for segment in closed[gone:])
        while gone < len(closed) and kept > retention.bytes:
            kept -= closed[gone].bytes
            gone += 1
    return gone


def first_kept(manifest: Manifest, segments: Sequence[Segment], gone: int, held: Sequence[Held]) -> int:
    """How many of `gone` segments may really go: a held row must be readable from its start on.

    Where rows were compacted away, a held range may begin between two segments: then the one before it stays too.
    """
    starts = [hold.start for hold in held if hold.end > manifest.start_offset]
    while gone and any(start < segments[gone].base_offset for start in starts):
        gone -= 1
    return gone
