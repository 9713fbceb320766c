"""Which old segments a topic lets go. Whole segments only; the active one always stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.log.manifest import Segment


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a partition is kept: by the age of its last append, by bytes, or for ever."""

    seconds: float | None = None
    bytes: int | None = None


def expired(segments: Sequence[Segment], retention: Retention, *, now: int) -> int:
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
