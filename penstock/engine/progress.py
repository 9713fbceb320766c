"""What epochs report: one of them, and all of a run together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.ledger.records import Gap
from penstock.engine.publish.measured import Published


@dataclass(frozen=True, slots=True)
class Totals:
    """What all epochs of a run did together."""

    epochs: int = 0
    rows: int = 0
    late: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """What one epoch did. `lag` is how many rows were waiting behind it, `watermark` is None where there is no time.

    `building` says that outputs that changed are being built again; the others stand still meanwhile. `targets` is what
    each target was given, by its name. `totals` are those of the run so far, with this epoch. `gaps` are the offsets
    that the app does without since this epoch.
    """

    epoch: int
    rows: int
    lag: int
    watermark: int | None
    late: int
    dead: int
    building: bool
    seconds: float
    targets: Mapping[str, Published]
    totals: Totals = Totals()
    gaps: tuple[Gap, ...] = ()
