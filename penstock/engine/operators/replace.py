"""One answer per key: the newest counts, and the one before it is retracted."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.operators.contract import (
    HASH,
    REVISION,
    SECOND_HASH,
    Outcome,
    Watermarks,
    hashes_of,
    old_numbers,
    replacement_changes,
    run_schema,
    with_run_key,
)
from penstock.engine.operators.windows import END, WindowOrder, window_expiry
from penstock.engine.state.arrangement import Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE
from penstock.engine.state.rows import Numbers, filter_rows, integers, with_columns
from penstock.engine.state.run import Run, sorted_run


@dataclass(frozen=True, slots=True)
class Replace:
    """The input has one row per key that was evaluated again; `_n` is 0 for a key that has no rows any more."""

    state: str
    window: WindowOrder | None = None
    upserts: bool = False

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {REVISION: pa.int64(), GONE: pa.bool_()}, (HASH, SECOND_HASH))

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        answers = sorted_run(with_run_key(changes, *hashes_of(changes)))
        old, has_old = arrangement.look_up(answers.order, answers.id)
        is_live = integers(changes := answers.batch, COUNT) != 0
        revision = old_numbers(old, has_old, REVISION)
        if self.window is not None:
            revision[has_old & (integers(changes, END) <= watermarks.before)] += 1
        new = with_columns(changes, {REVISION: revision, GONE: ~is_live}).select(self.schema(changes.schema).names)
        output = replacement_changes(old, has_old, new, is_live, upserts=self.upserts)
        return Outcome(output, Run(filter_rows(new, is_live | has_old)))
