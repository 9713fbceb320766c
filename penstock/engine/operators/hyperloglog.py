"""The registers of groups, each with the greatest rank it was shown: what `approx_count_distinct` stands on.

The input has one row per group and register that the epoch touched. A row goes out when a rank has risen, with what
that changes in the two sums that the estimate is made of. Only such ranks are stored, so that a group that has seen
many values costs next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import Outcome, Times, hashes_of, keyed
from penstock.engine.operators.windows import END, WindowOrder, group_order, late_windows, window_expiry
from penstock.engine.state.arrangement import Adding, Arrangement
from penstock.engine.state.columns import COUNT, ID, ORDER
from penstock.engine.state.rows import Numbers, integers, picked, with_columns
from penstock.engine.state.run import Run, sorted_run

RANK = "_rank"
SAID = "_said"  # by how much the sum of 2**-rank changes
USED = "_used"  # by how much the number of registers changes that have a rank


@dataclass(frozen=True, slots=True)
class HyperLogLog:
    """`window` is that of the groups, None for groups that last for ever."""

    state: str
    window: WindowOrder | None = None

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum", RANK: "max"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        columns = [COUNT, RANK, *([END] if self.window else []), ORDER, ID]
        return pa.schema([(name, pa.int64()) for name in columns])

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        changes = picked(changes, ~late_windows(self.window, changes, times.before))
        _, second = hashes_of(changes)
        touched = sorted_run(keyed(changes, group_order(self.window, changes), second))
        old, there = arrangement.look_up(touched.order, touched.id)
        before = np.zeros(touched.rows, dtype=np.int64)
        before[there] = integers(old, RANK)
        after = integers(touched.batch, RANK)
        # Powers of two: their sums are exact, in whatever order they are added.
        said = np.exp2(-after.astype(np.float64)) - np.where(there, np.exp2(-before.astype(np.float64)), 0.0)
        changed = with_columns(touched.batch, {SAID: said, USED: (~there).astype(np.int64)})
        rises = after > before
        run = picked(touched.batch.select(self.schema(changes.schema).names), rises)
        return Outcome([picked(changed, rises)], Run(run))
