"""What a benchmark part is made of: the measurement it yields, and how to take one.

A part is a module of this folder with a function `measurements() -> Iterator[Measurement]`. It yields each measurement
as soon as it is taken, so that a long run shows where it is.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number, what it was compared with in the same run, and whether it is good enough.

    `aim` is text for the reader (`'>= 0.5'`); `met` is the verdict, and None when the number is only reported.
    """

    name: str
    value: float
    unit: str
    compared_with: str = ""
    ratio: float | None = None
    aim: str = ""
    met: bool | None = None
    note: str = ""


def compared(
    name: str,
    value: float,
    unit: str,
    *,
    compared_with: str,
    reference: float,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Measurement:
    """A measurement beside a reference in the same unit. The aim is on their ratio, value / reference."""
    ratio = value / reference
    bounds = [(">=", at_least)] if at_least is not None else []
    bounds += [("<=", at_most)] if at_most is not None else []
    return Measurement(
        name=name,
        value=value,
        unit=unit,
        compared_with=f"{compared_with}: {reference:,.4g} {unit}",
        ratio=ratio,
        aim=" and ".join(f"{sign} {bound:g}" for sign, bound in bounds),
        met=all(ratio >= bound if sign == ">=" else ratio <= bound for sign, bound in bounds) if bounds else None,
        note=note,
    )


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_seconds(work: Callable[[], object], *, times: int = 5) -> float:
    """The shortest of several calls: what the work costs when nothing else disturbs it."""
    return min(seconds(work) for _ in range(times))


def median_seconds(work: Callable[[], object], *, times: int = 5) -> float:
    """The middle of several calls: what the work usually costs."""
    return statistics.median(seconds(work) for _ in range(times))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least `percent` of them do not exceed (nearest rank, no interpolation)."""
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[max(rank, 1) - 1]


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory that is removed afterwards, on the project's disk: in /tmp, which may be memory, fsync is free."""
    BUILD.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=BUILD))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
