"""What happens to an epoch that Spark loses: it is run again a few times, then the app stops and says why.

A row that crashes the process which evaluates it looks like a process that was killed. So it is neither dropped nor
retried forever: the last error says for which rows it still happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from penstock.engine.run.compiled import CompiledPlan, EpochInput
from penstock.engine.run.failures import FAILURES, SparkLostError, is_about_a_row
from penstock.engine.run.halving import Span, narrow
from penstock.errors import PenstockError

# How often in a row an epoch may be lost. With the pauses in between, that is about half a minute.
MOST_LOSSES = 6
# How long to look for the rows for which it happens, before the app stops.
NARROWING_SECONDS = 20.0


class Losses:
    """Counts how often in a row an epoch was lost."""

    def __init__(self) -> None:
        self._epoch = self._count = 0

    @contextmanager
    def count(self, compiled_plan: CompiledPlan, epoch_input: EpochInput) -> Iterator[None]:
        """Count a SparkLostError in this block, and tell it which attempt it was. After too many, end the app."""
        try:
            yield
        except SparkLostError as error:
            self._count = self._count + 1 if self._epoch == epoch_input.epoch else 1
            self._epoch = epoch_input.epoch
            if self._count < MOST_LOSSES:
                raise SparkLostError(error.message, hint=error.hint, attempt=self._count) from error
            self._count = 0
            raise _last_error(error, compiled_plan, epoch_input) from error
        self._count = 0


def _last_error(error: SparkLostError, compiled_plan: CompiledPlan, epoch_input: EpochInput) -> PenstockError:
    where = f"; {rows}" if (rows := crashing_rows(compiled_plan, epoch_input)) else ""
    return PenstockError(
        f"{error.message}; that was {MOST_LOSSES} times, one after the other{where}; no row was set aside",
        hint="a function given to map may end its process on a row (native code, os._exit): mend it, or filter such "
        "rows out before it; or memory is short: smaller epochs need less, AppSettings(max_rows=...); the next start "
        "runs the epoch again",
    )


def crashing_rows(compiled_plan: CompiledPlan, epoch_input: EpochInput) -> str | None:
    """For which rows alone Spark still loses its process, in words; None if functions are not to blame."""
    deadline = time.monotonic() + NARROWING_SECONDS
    try:
        probes = compiled_plan.probes(epoch_input)
        for topic, cut in epoch_input.cut.sources.items():
            for number in sorted(cut.starts):
                is_lost = _loss_test(compiled_plan, epoch_input, probes, topic, number)
                span = (cut.starts[number], cut.ends[number])
                if span[0] == span[1] or not is_lost(span):
                    continue
                start, end = narrow(span, is_lost, lambda: time.monotonic() < deadline)
                if is_lost((start, end)):
                    offsets = f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
                    return f"it happens over {offsets} of partition {number} of topic '{topic}' alone"
    except FAILURES:  # Spark has ended, so nothing can be found out
        pass
    return None


def _loss_test(
    compiled_plan: CompiledPlan, epoch_input: EpochInput, probes: Sequence[DataFrame], topic: str, number: int
) -> Callable[[Span], bool]:
    def is_lost(span: Span) -> bool:
        error = compiled_plan.failure_over(epoch_input, probes, topic, (number, *span))
        return error is not None and not is_about_a_row(error)

    return is_lost
