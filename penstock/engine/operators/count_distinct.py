"""Which values a group has, and how often: what `count(distinct x)` stands on.

The input has one row per group and value that the epoch touched, with how often it was added. A row goes out when a
value is new to its group (+1) or has left it (-1), so that the count of distinct values is a sum.
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

DELTA = "_delta"


@dataclass(frozen=True, slots=True)
class CountDistinct:
    """`window` is that of the groups, None for groups that last for ever."""

    state: str
    window: WindowOrder | None = None

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        columns = [COUNT, *([END] if self.window else []), ORDER, ID]
        return pa.schema([(name, pa.int64()) for name in columns])

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        changes = picked(changes, ~late_windows(self.window, changes, times.before))
        _, second = hashes_of(changes)
        values = sorted_run(keyed(changes, group_order(self.window, changes), second))
        old, there = arrangement.look_up(values.order, values.id)
        before = np.zeros(values.rows, dtype=np.int64)
        before[there] = integers(old, COUNT)
        added = integers(values.batch, COUNT)
        delta = (before + added > 0).astype(np.int64) - (before > 0).astype(np.int64)
        output = picked(with_columns(values.batch, {DELTA: delta}), delta != 0)
        run = picked(values.batch.select(self.schema(changes.schema).names), added != 0)
        return Outcome([output], Run(run))
