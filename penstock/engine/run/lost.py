"""What becomes of an epoch that Spark loses: it is run again, some times, and then the app stops and says why.

A row that crashes the process which evaluates it looks the same as a process that was killed. So it is neither dropped
nor tried for ever: the last error says over which rows it still happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from penstock.engine.run.compiled import CompiledPlan, EpochInput
from penstock.engine.run.failures import FAILURES, SparkLostError, is_about_a_row
from penstock.errors import PenstockError

# So often, one after the other, an epoch may be lost. With the pauses between them that is about half a minute.
MOST_LOSSES = 6
# How long the rows over which it happens are looked for, before the app stops.
NARROWING_SECONDS = 20.0

Span = tuple[int, int]
"""From an offset, until another."""


class Losses:
    """Counts how often an epoch was lost, one time after the other."""

    def __init__(self) -> None:
        self._epoch = self._count = 0

    @contextmanager
    def counted(self, engine: CompiledPlan, work: EpochInput) -> Iterator[None]:
        """Let an error that something was lost say how often that was; the last one ends the app."""
        try:
            yield
        except SparkLostError as error:
            self._count = self._count + 1 if self._epoch == work.epoch else 1
            self._epoch = work.epoch
            if self._count < MOST_LOSSES:
                raise SparkLostError(error.message, hint=error.hint, attempt=self._count) from error
            self._count = 0
            raise _last_error(error, engine, work) from error
        self._count = 0


def _last_error(error: SparkLostError, engine: CompiledPlan, work: EpochInput) -> PenstockError:
    found = f"; {place}" if (place := crashing_rows(engine, work)) else ""
    return PenstockError(
        f"{error.message}; that was {MOST_LOSSES} times, one after the other{found}; no row was set aside",
        hint="a function given to map may end its process on a row (native code, os._exit): mend it, or filter such "
        "rows out before it; or memory is short: smaller epochs need less, AppSettings(max_rows=...); the next start "
        "runs the epoch again",
    )


def crashing_rows(engine: CompiledPlan, work: EpochInput) -> str | None:
    """Over which rows alone Spark still loses its process, in words; None if functions are not to blame."""
    deadline = time.monotonic() + NARROWING_SECONDS
    try:
        probes = engine.probes(work)
        for topic, cut in work.cut.sources.items():
            for number in sorted(cut.starts):
                lost = _losing(engine, work, probes, topic, number)
                whole = (cut.starts[number], cut.ends[number])
                if whole[0] == whole[1] or not lost(whole):
                    continue
                start, end = narrowed(whole, lost, lambda: time.monotonic() < deadline)
                if lost((start, end)):
                    offsets = f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
                    return f"it happens over {offsets} of partition {number} of topic '{topic}' alone"
    except FAILURES:  # Spark is gone, and nothing can be found out
        pass
    return None


def _losing(
    engine: CompiledPlan, work: EpochInput, probes: Sequence[DataFrame], topic: str, number: int
) -> Callable[[Span], bool]:
    def lost(span: Span) -> bool:
        error = engine.fails(work, probes, topic, (number, *span))
        return error is not None and not is_about_a_row(error)

    return lost


def narrowed(span: Span, fails: Callable[[Span], bool], has_time: Callable[[], bool] = lambda: True) -> Span:
    """A span that fails, halved until it is one row: the first that fails, if each row fails by itself or not.

    Only first halves are tried: where one does not fail, the second must.
    """
    start, end = span
    while end - start > 1 and has_time():
        middle = (start + end) // 2
        start, end = (start, middle) if fails((start, middle)) else (middle, end)
    return start, end
