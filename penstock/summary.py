"""What a run of an app did, for those who start it from Python: an epoch at a time, and all of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSummary:
    """What one epoch did. `app.run(on_epoch=...)` is called with it once the epoch is committed.

    - `epoch`: its number. `seconds`: how long it took.
    - `rows`: how many rows it read. `lag`: how many were waiting in the log when it was done.
    - `late`: how many rows came too late; one that is too late for two views counts for each. `dead`: how many rows
      were set aside because they are bad.
    - `watermark`: up to when all events are expected to have come; None if no topic has a time yet.
    - `building`: whether changed views are being built again; the others wait meanwhile.
    """

    epoch: int
    rows: int
    lag: int
    late: int
    dead: int
    watermark: datetime | None
    building: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run of an app did, from its start to its end.

    - `app`: its name. `epochs`: how many epochs were committed. `last_epoch`: the number of the last; None for none.
    - `rows`, `late`, `dead`: how many rows were read, came too late and were set aside, in all epochs together.
    - `seconds`: how long the run took, with the start of Spark.
    """

    app: str
    epochs: int
    last_epoch: int | None
    rows: int
    late: int
    dead: int
    seconds: float
