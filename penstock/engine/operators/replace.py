"""One answer per key: the newest counts, and the one before it is taken back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.accumulate import REVISION
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
from penstock.engine.operators.windows import WindowOrder, is_late, window_ends
from penstock.engine.state.arrangement import GONE, Arrangement, Keep, Replacing
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.run import ID, ORDER, sorted_run


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
        return run_schema(changes, {REVISION: pa.int64(), GONE: pa.bool_()})

    def keep(self, times: Times) -> Keep | None:
        window = self.window
        if window is None:
            return None
        return lambda rows: ~is_late(window, window_ends(rows), times.after)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        order, id_ = hashes_of(changes)
        old, there = arrangement.look_up(order, id_)
        lives = integers(changes, COUNT) != 0
        revision = np.where(there, old.column(REVISION).fill_null(0).to_numpy(zero_copy_only=False) + 1, 0)
        new = with_columns(keyed(changes, order, id_), {REVISION: revision.astype(np.int64), GONE: ~lives})
        new = new.select(self.schema(changes.schema).names)
        taken_back = there & ~lives if self.upserts else there
        output = [weighted(old.filter(pa.array(taken_back)), -1), weighted(new.filter(pa.array(lives)), 1)]
        return Outcome(output, sorted_run(new.filter(pa.array(lives | there))))
