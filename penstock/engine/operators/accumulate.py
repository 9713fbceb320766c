"""Aggregates that add up: counts, sums, least and greatest values, in groups and windows.

The input has one row per group that the epoch touched, already summed up by Spark. While the answer of a window is not
asked for, a run holds exactly that: an epoch's part of it, which costs nothing but writing it down. The parts are put
together when the window closes. After that, and wherever changes are asked for, a run holds whole answers, so that what
is taken back is what was given, to the last digit of a sum of doubles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.operators.contract import (
    EVENTS,
    HASH,
    REVISION,
    SECOND_HASH,
    Outcome,
    Times,
    hashes_of,
    keyed,
    on_time,
    run_schema,
    weighted,
)
from penstock.engine.operators.windows import END, WindowOrder, closing, group_order, late_windows, window_expiry
from penstock.engine.state.arrangement import Adding, Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE, WHOLE
from penstock.engine.state.combine import Rule
from penstock.engine.state.rows import Numbers, integers, picked, stacked, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Mask


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`rules` names the accumulators, `titles` says what a user calls them. `window` is None for groups without one.

    `final`: answers are given when the window closes, and after that when they are corrected. `upserts`: whoever reads
    the answers replaces an old one by its key, so that only those that vanish have to be taken back.
    """

    state: str
    rules: dict[str, Rule]
    window: WindowOrder | None = None
    final: bool = False
    upserts: bool = False
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Adding | Replacing:
        return self._adding if self.final else Replacing()

    @property
    def _adding(self) -> Adding:
        return Adding({**self.rules, COUNT: "sum", REVISION: "sum"}, self.titles)

    def schema(self, changes: pa.Schema) -> pa.Schema:
        mark = WHOLE if self.final else GONE
        return run_schema(changes, {REVISION: pa.int64(), mark: pa.bool_()}, (HASH, SECOND_HASH, EVENTS))

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        late = late_windows(self.window, changes, times.before)
        changes, counts = on_time(changes, late)
        part = sorted_run(self._rows(changes)).batch
        if self.final:
            return self._closed(part, arrangement, times, counts)
        run, output, counts["corrected"] = self._changed(part, arrangement, times)
        return Outcome(output, Run(run), counts)

    def _rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes as rows of the state, none of which revises anything yet."""
        _, second = hashes_of(changes)
        none = np.zeros(changes.num_rows, dtype=np.int64)
        rows = with_columns(changes, {REVISION: none, WHOLE if self.final else GONE: none.astype(np.bool_)})
        rows = keyed(rows, group_order(self.window, changes), second)
        return rows.select(self.schema(changes.schema).names)

    def _closed(self, part: pa.RecordBatch, arrangement: Arrangement, times: Times, counts: dict[str, int]) -> Outcome:
        """Correct windows that were closed before; close those that the watermark has passed now."""
        assert self.window is not None
        closed = integers(part, END) <= times.before
        corrected, output, counts["corrected"] = self._changed(picked(part, closed), arrangement, times)
        still_open = picked(part, ~closed)
        answers = closing(self.window, arrangement.with_run(Run(still_open)), times).batch
        run = sorted_run(stacked([corrected, still_open], part.schema))
        return Outcome([*output, weighted(answers, 1)], run, counts)

    def _changed(
        self, part: pa.RecordBatch, arrangement: Arrangement, times: Times
    ) -> tuple[pa.RecordBatch, list[pa.RecordBatch], int]:
        """The groups of this part as they are now; the changes of the answers; and how many of those were final."""
        run = Run(part)
        old, there = arrangement.look_up(run.order, run.id)
        final = there & self._final(part, times)
        new = self._grown(with_columns(part, {REVISION: final.astype(np.int64)}), old, there)
        lives = integers(new, COUNT) != 0
        taken_back = picked(old, ~lives[there]) if self.upserts else old
        output = [weighted(taken_back, -1), weighted(picked(new, lives), 1)]
        marks = {WHOLE: np.ones(len(lives), dtype=np.bool_)} if self.final else {GONE: ~lives}
        return picked(with_columns(new, marks), lives | there), output, int(final.sum())

    def _final(self, part: pa.RecordBatch, times: Times) -> Mask:
        """Which groups are of windows that had closed before this epoch."""
        if self.window is None:
            return np.zeros(part.num_rows, dtype=np.bool_)
        return integers(part, END) <= times.before

    def _grown(self, part: pa.RecordBatch, old: pa.RecordBatch, there: Mask) -> pa.RecordBatch:
        """The part with the old rows of those groups that were there added to it."""
        if not old.num_rows:
            return part
        names = [COUNT, REVISION, *self.rules]
        both = self._adding.together(old.select(names), picked(part, there).select(names))
        if there.all():
            return with_columns(part, dict(zip(names, both.columns, strict=True)))
        marks = pa.array(there)
        grown = [pc.replace_with_mask(part.column(name), marks, both.column(name)) for name in names]
        return with_columns(part, dict(zip(names, grown, strict=True)))
