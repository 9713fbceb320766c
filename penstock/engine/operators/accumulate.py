"""Aggregates that add up: counts, sums, minima and maxima, in groups and windows.

The input has one row per group that the epoch touches, already summed up by Spark. While nobody needs the answer of a
window, its runs hold the parts of each epoch, which cost no more than writing them. The parts are added up when the
window closes. After that, and wherever every change is emitted, a run holds complete answers, so that what is retracted
is what was emitted, to the last digit of a sum of doubles.
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
    Watermarks,
    as_changes,
    drop_late,
    hashes_of,
    replacement_changes,
    run_schema,
    with_run_key,
)
from penstock.engine.operators.windows import END, WindowOrder, closing_rows, group_order, late_windows, window_expiry
from penstock.engine.state.arrangement import Adding, Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE, WHOLE
from penstock.engine.state.combine import Rule
from penstock.engine.state.rows import Numbers, concat_rows, filter_rows, integers, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Mask


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`rules` are those of the accumulators, `titles` their names in errors. `window` is None for groups without one.

    With `final`, answers are emitted when the window closes and when they are corrected after that. With `upserts`, the
    reader replaces an old answer by its key, so that only answers that vanish are retracted.
    """

    state: str
    rules: dict[str, Rule]
    window: WindowOrder | None = None
    final: bool = False
    upserts: bool = False
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Adding | Replacing:
        return self._adding_kind if self.final else Replacing()

    @property
    def _adding_kind(self) -> Adding:
        return Adding({**self.rules, COUNT: "sum", REVISION: "sum"}, self.titles)

    def schema(self, changes: pa.Schema) -> pa.Schema:
        mark = WHOLE if self.final else GONE
        return run_schema(changes, {REVISION: pa.int64(), mark: pa.bool_()}, (HASH, SECOND_HASH, EVENTS))

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        late = late_windows(self.window, changes, watermarks.before)
        changes, counts = drop_late(changes, late)
        part = sorted_run(self._state_rows(changes)).batch
        if self.final:
            return self._close_windows(part, arrangement, watermarks, counts)
        run, output, counts["corrected"] = self._update_groups(part, arrangement, watermarks)
        return Outcome(output, Run(run), counts)

    def _state_rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes as rows of the state, with no revisions yet."""
        _, second = hashes_of(changes)
        none = np.zeros(changes.num_rows, dtype=np.int64)
        rows = with_columns(changes, {REVISION: none, WHOLE if self.final else GONE: none.astype(np.bool_)})
        rows = with_run_key(rows, group_order(self.window, changes), second)
        return rows.select(self.schema(changes.schema).names)

    def _close_windows(
        self, part: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks, counts: dict[str, int]
    ) -> Outcome:
        """Correct windows that had closed before; close those that the watermark passes now."""
        assert self.window is not None
        was_closed = integers(part, END) <= watermarks.before
        corrected_rows, output, counts["corrected"] = self._update_groups(
            filter_rows(part, was_closed), arrangement, watermarks
        )
        open_rows = filter_rows(part, ~was_closed)
        answers = closing_rows(self.window, arrangement.with_run(Run(open_rows)), watermarks).batch
        run = sorted_run(concat_rows([corrected_rows, open_rows], part.schema))
        return Outcome([*output, as_changes(answers, 1)], run, counts)

    def _update_groups(
        self, part: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks
    ) -> tuple[pa.RecordBatch, list[pa.RecordBatch], int]:
        """The touched groups as they are now; the changes of their answers; and how many of those were final."""
        run = Run(part)
        old, has_old = arrangement.look_up(run.order, run.id)
        final = has_old & self._was_final(part, watermarks)
        new = self._add_old_rows(with_columns(part, {REVISION: final.astype(np.int64)}), old, has_old)
        is_live = integers(new, COUNT) != 0
        output = replacement_changes(old, has_old, new, is_live, upserts=self.upserts)
        marks = {WHOLE: np.ones(len(is_live), dtype=np.bool_)} if self.final else {GONE: ~is_live}
        return filter_rows(with_columns(new, marks), is_live | has_old), output, int(final.sum())

    def _was_final(self, part: pa.RecordBatch, watermarks: Watermarks) -> Mask:
        """Which groups are in windows that had closed before this epoch."""
        if self.window is None:
            return np.zeros(part.num_rows, dtype=np.bool_)
        return integers(part, END) <= watermarks.before

    def _add_old_rows(self, part: pa.RecordBatch, old: pa.RecordBatch, has_old: Mask) -> pa.RecordBatch:
        """Add the old rows to the part; `has_old` says which groups have one."""
        if not old.num_rows:
            return part
        names = [COUNT, REVISION, *self.rules]
        sums = self._adding_kind.combine_rows(old.select(names), filter_rows(part, has_old).select(names))
        if has_old.all():
            return with_columns(part, dict(zip(names, sums.columns, strict=True)))
        marks = pa.array(has_old)
        columns = [pc.replace_with_mask(part.column(name), marks, sums.column(name)) for name in names]
        return with_columns(part, dict(zip(names, columns, strict=True)))
