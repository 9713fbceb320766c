"""The rows of groups, kept so that Spark can evaluate any aggregate again over those that were touched.

The input has each different row of a group once, with how often it was added (`_n`) and a hash of the whole row. What goes
out is every row that a touched group has now, and one row with `_times` 0 for each such group, so that a group which
has lost its last row is not forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.accumulate import EVENTS
from penstock.engine.operators.contract import (
    HASH,
    SECOND_HASH,
    Outcome,
    Times,
    hashes_of,
    integers,
    with_columns,
    without_columns,
)
from penstock.engine.operators.windows import START, WindowOrder, closing_bounds, is_late, window_ends, window_order
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.arrangement import Adding, Arrangement, Keep, Mask
from penstock.engine.state.run import ID, ORDER, Hashes, Run, sorted_run
from penstock.engine.state.search import firsts

ROW_HASH = "_row"
TIMES = "_times"


@dataclass(frozen=True, slots=True)
class Regroup:
    """`window` is None for groups that last for ever. `final`: groups are evaluated when their window closes, and
    after that when they are corrected; else whenever they change."""

    state: str
    window: WindowOrder | None = None
    final: bool = False

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        own = {EVENTS, ROW_HASH, HASH}
        fields = [pa.field(field.name, field.type) for field in changes if field.name not in own]
        return pa.schema([*fields, pa.field(ORDER, pa.int64()), pa.field(ID, pa.int64())])

    def keep(self, times: Times) -> Keep | None:
        window = self.window
        if window is None:
            return None
        return lambda rows: ~is_late(window, window_ends(rows), times.after)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        counts = {"events": int(integers(changes, EVENTS).sum())}
        if self.window is not None:
            late = is_late(self.window, window_ends(changes), times.before)
            if late.any():
                counts["late"] = int(integers(changes, EVENTS)[late].sum())
                counts["late_groups"] = int(late.sum())
                changes = changes.filter(pa.array(~late))
        part = sorted_run(self._rows(changes))
        grown = arrangement.with_run(part)
        touched = grown.of_orders(self._touched(part, times)) if part.rows else Run(part.batch)
        output = _evaluated(touched.batch, part.batch.filter(pa.array(self._now(part.batch, times))))
        if self.final and times.after > times.before:
            assert self.window is not None
            closing = grown.between(
                closing_bounds(self.window, times.before, times.after),
                lambda rows: (window_ends(rows) > times.before) & (window_ends(rows) <= times.after),
            )
            output += _evaluated(closing.batch, closing.batch.slice(0, 0))
        return Outcome(output, part, counts)

    def _rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        first, _ = hashes_of(changes)
        order = first if self.window is None else window_order(self.window, integers(changes, START), first)
        rows = with_columns(changes, {ORDER: order.view(np.int64), ID: changes.column(ROW_HASH)})
        return rows.select(self.schema(changes.schema).names)

    def _now(self, part: pa.RecordBatch, times: Times) -> Mask:
        """Which groups are evaluated because they changed."""
        if not self.final:
            return np.ones(part.num_rows, dtype=np.bool_)
        return np.asarray(window_ends(part) <= times.before, dtype=np.bool_)

    def _touched(self, part: Run, times: Times) -> Hashes:
        order = part.order[self._now(part.batch, times)]
        return np.unique(order)


def _evaluated(rows: pa.RecordBatch, changed: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows, and a row for each group among `changed` with `_times` 0."""
    live = without_columns(rows, ORDER, ID, COUNT, SECOND_HASH)
    live = with_columns(live, {TIMES: rows.column(COUNT)})
    order = np.lexsort((changed.column(SECOND_HASH).to_numpy(), changed.column(ORDER).to_numpy()))
    sorted_ = changed.take(pa.array(order))
    marks = firsts(integers(sorted_, ORDER), integers(sorted_, SECOND_HASH))
    groups = without_columns(sorted_.filter(pa.array(marks)), ORDER, ID, COUNT, SECOND_HASH)
    return [live, with_columns(groups, {TIMES: np.zeros(groups.num_rows, dtype=np.int64)})]
