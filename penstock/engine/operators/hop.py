"""Hopping windows: an epoch brings each pane of time once, and the operator adds it to all windows it is in.

Only panes travel between Spark tasks, and from Spark to Python. There are several times fewer of them than windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import EVENTS, HASH, SECOND_HASH, Outcome, Watermarks, hashes_of
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import Adding, Arrangement, Kind
from penstock.engine.state.columns import COUNT
from penstock.engine.state.combine import fold_groups
from penstock.engine.state.rows import Numbers, integers, take_rows, with_columns, without_columns
from penstock.engine.state.search import Hashes, Mask, argsort_by_key, firsts

PANE = "_pane"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that different starts give different hashes


@dataclass(frozen=True, slots=True)
class Hop:
    """`windows` accumulates the windows. A pane is identified by its start; no window begins or ends within one."""

    windows: Accumulate
    size: int
    every: int
    offset: int

    @property
    def state(self) -> str:
        return self.windows.state

    @property
    def kind(self) -> Kind:
        return self.windows.kind

    def schema(self, changes: pa.Schema) -> pa.Schema:
        names = [name for name in changes.names if name != PANE]
        columns = [*(changes.field(name) for name in names), pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        return self.windows.schema(pa.schema(columns))

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return self.windows.expiry(rows, whole)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        return self.windows.step(self._sum_by_window(self._windows_of_panes(changes)), arrangement, watermarks)

    def _windows_of_panes(self, panes: pa.RecordBatch) -> pa.RecordBatch:
        """A row for each pane and each window it is in."""
        pane = integers(panes, PANE)
        last = pane - (pane - self.offset) % self.every
        steps_back = np.arange(-(-self.size // self.every))
        starts = last[:, np.newaxis] - steps_back * self.every
        inside = starts + self.size > pane[:, np.newaxis]
        number, how_far = np.nonzero(inside)
        rows, start = take_rows(without_columns(panes, PANE), number), starts[inside]
        first, second = hashes_of(rows)
        return with_columns(
            rows,
            {
                START: start,
                END: start + self.size,
                # In the accounts an event counts once, in the last of its windows.
                EVENTS: np.where(how_far == 0, integers(rows, EVENTS), 0),
                HASH: _mix(first, start).view(np.int64),
                SECOND_HASH: _mix(second, start).view(np.int64),
            },
        )

    def _sum_by_window(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Add up the rows of the same group in the same window."""
        first, second = hashes_of(rows)
        at = argsort_by_key(first, second)
        begins: Mask = firsts(first[at], second[at])
        if begins.all():
            return rows
        kind = Adding({**self.windows.rules, COUNT: "sum", EVENTS: "sum"}, self.windows.titles)
        return fold_groups(take_rows(rows, at), begins, kind.combine_rows)


def _mix(hashes: Hashes, start: Numbers) -> Hashes:
    """The hash of a group in a window, from that of the group."""
    bits: Hashes = hashes ^ (start.view(np.uint64) * _MIX)
    return bits
