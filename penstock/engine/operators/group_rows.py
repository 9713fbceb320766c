"""The rows of groups, kept so that Spark can evaluate any aggregate again over those that were touched.

What goes out is every row that a touched group has now, and one row with `_times` 0 for each such group, so that a
group which has lost its last row is not forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import SECOND_HASH, Outcome, Times, on_time
from penstock.engine.operators.members import MEMBERS, OWN, by_group, groups, members, members_schema, of_groups
from penstock.engine.operators.windows import END, WindowOrder, closing, group_order, late_windows, window_expiry
from penstock.engine.state.arrangement import Adding, Arrangement
from penstock.engine.state.columns import COUNT, ORDER
from penstock.engine.state.rows import Numbers, integers, picked, taken, with_columns, without_columns
from penstock.engine.state.run import Run
from penstock.engine.state.search import distinct, firsts

TIMES = "_times"


@dataclass(frozen=True, slots=True)
class GroupRows:
    """`window` is None for groups that last for ever.

    `final`: groups are evaluated when their window closes, and after that when they are corrected; else whenever they
    change.
    """

    state: str
    window: WindowOrder | None = None
    final: bool = False

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return members_schema(changes)

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        late = late_windows(self.window, changes, times.before)
        changes, counts = on_time(changes, late)
        part = members(changes, group_order(self.window, changes))
        closed = Run(self._closed(part.batch, times))
        counts["corrected"] = _answered(arrangement, closed)
        changed = closed if self.final else part
        grown = arrangement.with_run(part)
        output = [_live(_touched(grown, changed).batch), _markers(changed.batch)]
        if self.final:
            assert self.window is not None
            output.append(_live(closing(self.window, grown, times).batch))
        return Outcome(output, part, counts)

    def _closed(self, part: pa.RecordBatch, times: Times) -> pa.RecordBatch:
        """The rows of windows that were closed before this epoch."""
        return part.slice(0, 0) if self.window is None else picked(part, integers(part, END) <= times.before)


def _touched(arrangement: Arrangement, changed: Run) -> Run:
    """All rows of the groups that have one of those that changed."""
    rows = arrangement.of_orders(distinct(changed.order))
    return Run(picked(rows.batch, of_groups(rows, changed)))


def _answered(arrangement: Arrangement, closed: Run) -> int:
    """How many of the groups that changed after they had closed had rows before, and so an answer."""
    if not closed.rows:
        return 0
    return int(_first_of_each(_touched(arrangement, closed).batch).num_rows)


def _live(rows: pa.RecordBatch) -> pa.RecordBatch:
    return with_columns(without_columns(rows, *OWN), {TIMES: rows.column(COUNT)})


def _markers(changed: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each group with `_times` 0."""
    one = _first_of_each(changed)
    return with_columns(without_columns(one, *OWN), {TIMES: np.zeros(one.num_rows, dtype=np.int64)})


def _first_of_each(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A row of each group."""
    order = by_group(rows)
    return taken(rows, order[firsts(groups(taken(rows.select([ORDER, SECOND_HASH]), order)))])
