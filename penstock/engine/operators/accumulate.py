"""Aggregates that add up: counts, sums, least and greatest values, in groups and windows.

The input has one row per group that the epoch touched, already summed up by Spark. What a run holds is exactly that: an
epoch's part of the answer. A window that is still open therefore costs nothing but writing the part down; the parts
are put together when the window closes, when a late row corrects it, or at every change where changes are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    Outcome,
    Times,
    hashes_of,
    integers,
    keyed,
    run_schema,
    weighted,
    with_columns,
    without_columns,
)
from penstock.engine.operators.windows import START, WindowOrder, closing_bounds, is_late, window_ends, window_order
from penstock.engine.state.arrangement import Adding, Arrangement, Keep, Mask, Rule
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.run import ID, ORDER, Run, sorted_run

REVISION = "_revision"
EVENTS = "_events"  # how many events count here for the books: one that is in several windows counts in its last one


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`rules` names the accumulators. `window` is None for groups that last for ever.

    `final`: answers are given when the window closes, and after that when they are corrected. `upserts`: whoever reads
    the answers replaces an old one by its key, so that only those that vanish have to be taken back.
    """

    state: str
    rules: dict[str, Rule]
    window: WindowOrder | None = None
    final: bool = False
    upserts: bool = False

    @property
    def kind(self) -> Adding:
        return Adding({**self.rules, COUNT: "sum", REVISION: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {REVISION: pa.int64()}, without=(EVENTS,))

    def keep(self, times: Times) -> Keep | None:
        window = self.window
        if window is None:
            return None
        return lambda rows: ~is_late(window, window_ends(rows), times.after)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        counts = {"events": int(integers(changes, EVENTS).sum())}
        part = self._part(changes)
        if self.window is not None:
            late = is_late(self.window, window_ends(part), times.before)
            if late.any():
                counts["late"] = int(integers(changes, EVENTS)[late].sum())
                counts["late_groups"] = int(late.sum())
                part = part.filter(pa.array(~late))
        part = sorted_run(part).batch
        if self.final:
            return self._final(part, arrangement, times, counts)
        part, output = self._corrected(part, arrangement)
        return Outcome(output, Run(part), counts)

    def _part(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes as rows of the state, none of which revises anything yet."""
        first, second = hashes_of(changes)
        order = first if self.window is None else window_order(self.window, integers(changes, START), first)
        fresh = with_columns(without_columns(changes, EVENTS), {REVISION: np.zeros(len(first), dtype=np.int64)})
        part = keyed(fresh, order, second)
        return part.select(self.schema(changes.schema).names)

    def _final(
        self, part: pa.RecordBatch, arrangement: Arrangement, times: Times, counts: dict[str, int]
    ) -> Outcome:
        """Correct windows that were closed before; close those that the watermark has passed now."""
        assert self.window is not None
        closed = window_ends(part) <= times.before
        output: list[pa.RecordBatch] = []
        if closed.any():
            corrected, output = self._corrected(part.filter(pa.array(closed)), arrangement)
            counts["corrected"] = corrected.num_rows
            part = sorted_run(pa.concat_batches([corrected, part.filter(pa.array(~closed))])).batch
        if times.after > times.before:
            bounds = closing_bounds(self.window, times.before, times.after)
            now_closed = arrangement.with_run(Run(part)).between(
                bounds, lambda rows: _between(window_ends(rows), times.before, times.after)
            )
            output.append(weighted(now_closed.batch, 1))
        return Outcome(output, Run(part), counts)

    def _corrected(self, part: pa.RecordBatch, arrangement: Arrangement) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
        """The groups of this part as they are now, instead of as they were; and the part, marked as a revision."""
        run = Run(part)
        old, there = arrangement.look_up(run.order, run.id)
        part = with_columns(part, {REVISION: there.astype(np.int64)})
        new = self.kind.together(old, part) if there.any() else part
        lives = integers(new, COUNT) != 0
        taken_back = there & ~lives if self.upserts else there
        return part, [weighted(old.filter(pa.array(taken_back)), -1), weighted(new.filter(pa.array(lives)), 1)]


def _between(ends: np.ndarray, before: int, after: int) -> Mask:
    return np.asarray((ends > before) & (ends <= after), dtype=np.bool_)
