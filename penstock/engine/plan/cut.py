"""The cut of an epoch: up to which offset it reads every source, and how far time has come there. Plain data.

It is recorded before the epoch runs, so that a retry reads the same rows at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.plan.watermark import SourceTime

Ends = Mapping[int, int]
"""For every partition the offset of the first row that is no longer read."""


@dataclass(frozen=True, slots=True)
class SourceCut:
    """What an epoch reads of one topic: from `starts` up to `ends`, by partition. `time` is None for one without."""

    topic: str
    topic_id: str
    starts: Ends
    ends: Ends
    time: SourceTime | None


@dataclass(frozen=True, slots=True)
class Cut:
    """What an epoch reads, of every source by its name. `wall` is the driver's clock when it was planned."""

    epoch: int
    wall: int  # microseconds since 1970
    sources: Mapping[str, SourceCut]
