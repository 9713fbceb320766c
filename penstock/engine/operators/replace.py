"""One answer per key: the newest counts, and the one before it is taken back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    HASH,
    REVISION,
    SECOND_HASH,
    Outcome,
    Times,
    hashes_of,
    keyed,
    run_schema,
    weighted,
)
from penstock.engine.operators.windows import END, WindowOrder, window_expiry
from penstock.engine.state.arrangement import Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE
from penstock.engine.state.rows import Numbers, integers, picked, with_columns
from penstock.engine.state.run import Run, sorted_run


@dataclass(frozen=True, slots=True)
class Replace:
    """Takes one row per key that was evaluated anew; `_n` is 0 where the key has no rows any more."""

    state: str
    window: WindowOrder | None = None
    upserts: bool = False

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {REVISION: pa.int64(), GONE: pa.bool_()}, (HASH, SECOND_HASH))

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        answers = sorted_run(keyed(changes, *hashes_of(changes)))
        old, there = arrangement.look_up(answers.order, answers.id)
        lives = integers(changes := answers.batch, COUNT) != 0
        revision = np.zeros(answers.rows, dtype=np.int64)
        revision[there] = integers(old, REVISION)
        if self.window is not None:
            revision[there & (integers(changes, END) <= times.before)] += 1
        new = with_columns(changes, {REVISION: revision, GONE: ~lives}).select(self.schema(changes.schema).names)
        taken_back = picked(old, ~lives[there]) if self.upserts else old
        output = [weighted(taken_back, -1), weighted(picked(new, lives), 1)]
        return Outcome(output, Run(picked(new, lives | there)))
