"""Which values a group has, and how often: what `count(distinct x)` stands on.

The input has one row per group and value that the epoch touched, with how often it was added. A row goes out when a value
is new to its group (+1) or has left it (-1), so that the count of distinct values is a sum.
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
    with_columns,
)
from penstock.engine.operators.windows import END, START, WindowOrder, is_late, window_ends, window_order
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.arrangement import Adding, Arrangement, Keep
from penstock.engine.state.run import ID, ORDER, sorted_run

DELTA = "_delta"


@dataclass(frozen=True, slots=True)
class Weigh:
    """`window` is that of the groups, None for groups that last for ever."""

    state: str
    window: WindowOrder | None = None

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        columns = [ORDER, ID, COUNT, *([END] if self.window else [])]
        return pa.schema([pa.field(name, pa.int64()) for name in columns])

    def keep(self, times: Times) -> Keep | None:
        window = self.window
        if window is None:
            return None
        return lambda rows: ~is_late(window, window_ends(rows), times.after)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        if self.window is not None:
            late = is_late(self.window, window_ends(changes), times.before)
            changes = changes.filter(pa.array(~late)) if late.any() else changes
        first, second = hashes_of(changes)
        order = first if self.window is None else window_order(self.window, integers(changes, START), first)
        old, there = arrangement.look_up(order, second)
        added = integers(changes, COUNT)
        before = np.where(there, old.column(COUNT).fill_null(0).to_numpy(zero_copy_only=False), 0)
        delta = (before + added > 0).astype(np.int64) - (before > 0).astype(np.int64)
        output = with_columns(changes, {DELTA: delta}).filter(pa.array(delta != 0))
        rows = with_columns(changes, {ORDER: order.view(np.int64), ID: second.view(np.int64)})
        return Outcome([output], sorted_run(rows.select(self.schema(changes.schema).names)))
