"""Hopping windows: an epoch brings each pane of time once, and here it is put into all the windows it is in.

Between Spark and Python, and from one Spark task to another, travel the panes only, of which there are several times
fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import EVENTS, HASH, SECOND_HASH, Outcome, Times, hashes_of
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import Adding, Arrangement, Kind
from penstock.engine.state.columns import COUNT
from penstock.engine.state.combine import folded
from penstock.engine.state.rows import Numbers, integers, taken, with_columns, without_columns
from penstock.engine.state.search import Hashes, Mask, by_key, firsts

PANE = "_pane"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two starts are mixed alike


@dataclass(frozen=True, slots=True)
class Hop:
    """`windows` gets the windows of panes. A pane is known by its start, and no window begins or ends within one."""

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

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return self.windows.expires(rows, whole)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        return self.windows.step(self._added_up(self._spread(changes)), arrangement, times)

    def _spread(self, panes: pa.RecordBatch) -> pa.RecordBatch:
        """A row for each window that a pane is in."""
        pane = integers(panes, PANE)
        last = pane - (pane - self.offset) % self.every
        back = np.arange(-(-self.size // self.every))
        starts = last[:, np.newaxis] - back * self.every
        inside = starts + self.size > pane[:, np.newaxis]
        number, how_far = np.nonzero(inside)
        rows, start = taken(without_columns(panes, PANE), number), starts[inside]
        first, second = hashes_of(rows)
        return with_columns(
            rows,
            {
                START: start,
                END: start + self.size,
                # In the books an event counts once, in the last of its windows.
                EVENTS: np.where(how_far == 0, integers(rows, EVENTS), 0),
                HASH: _mixed(first, start).view(np.int64),
                SECOND_HASH: _mixed(second, start).view(np.int64),
            },
        )

    def _added_up(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the same group in the same window as one."""
        first, second = hashes_of(rows)
        at = by_key(first, second)
        begins: Mask = firsts(first[at], second[at])
        if begins.all():
            return rows
        adding = Adding({**self.windows.rules, COUNT: "sum", EVENTS: "sum"}, self.windows.titles)
        return folded(taken(rows, at), begins, adding.together)


def _mixed(hashes: Hashes, start: Numbers) -> Hashes:
    """The hash of a group as one of a group in a window."""
    mixed: Hashes = hashes ^ (start.view(np.uint64) * _MIX)
    return mixed
