"""Keeps the rows of groups, so that Spark can evaluate any aggregate again over the groups that an epoch touches.

It emits every row that a touched group has now, and a row with `_times` 0 for each such group, so that one which has
lost its last row is evaluated too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import SECOND_HASH, Outcome, Watermarks, drop_late
from penstock.engine.operators.members import (
    STATE_COLUMNS,
    MemberState,
    argsort_by_group,
    in_groups_of,
    member_groups,
    member_run,
)
from penstock.engine.operators.windows import END, WindowOrder, closing_rows, group_order, late_windows, window_expiry
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, ORDER
from penstock.engine.state.rows import Numbers, filter_rows, integers, take_rows, with_columns, without_columns
from penstock.engine.state.run import Run
from penstock.engine.state.search import firsts, unique

MULTIPLICITY = "_times"  # how often a row is in its group


@dataclass(frozen=True, slots=True)
class GroupRows(MemberState):
    """`window` is None for groups that never expire.

    With `final`, groups are evaluated when their window closes and when they are corrected after that; otherwise
    whenever they change.
    """

    state: str
    window: WindowOrder | None = None
    final: bool = False

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return window_expiry(self.window, rows)

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        late = late_windows(self.window, changes, watermarks.before)
        changes, counts = drop_late(changes, late)
        part = member_run(changes, group_order(self.window, changes))
        closed_rows = Run(self._closed_rows(part.batch, watermarks))
        counts["corrected"] = _count_answered(arrangement, closed_rows)
        changed_rows = closed_rows if self.final else part
        grown_arrangement = arrangement.with_run(part)
        output = [
            _live_rows(_rows_of_touched_groups(grown_arrangement, changed_rows).batch),
            _group_markers(changed_rows.batch),
        ]
        if self.final:
            assert self.window is not None
            output.append(_live_rows(closing_rows(self.window, grown_arrangement, watermarks).batch))
        return Outcome(output, part, counts)

    def _closed_rows(self, part: pa.RecordBatch, watermarks: Watermarks) -> pa.RecordBatch:
        """The rows of windows that closed before this epoch."""
        return part.slice(0, 0) if self.window is None else filter_rows(part, integers(part, END) <= watermarks.before)


def _rows_of_touched_groups(arrangement: Arrangement, changed_rows: Run) -> Run:
    """All rows of the groups of those that changed."""
    rows = arrangement.rows_of_orders(unique(changed_rows.order))
    return Run(filter_rows(rows.batch, in_groups_of(rows, changed_rows)))


def _count_answered(arrangement: Arrangement, closed_rows: Run) -> int:
    """How many of the groups that changed after closing had rows before, and so an answer."""
    if not closed_rows.rows:
        return 0
    return int(_first_of_each(_rows_of_touched_groups(arrangement, closed_rows).batch).num_rows)


def _live_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    return with_columns(without_columns(rows, *STATE_COLUMNS), {MULTIPLICITY: rows.column(COUNT)})


def _group_markers(changed_rows: pa.RecordBatch) -> pa.RecordBatch:
    """A row with `_times` 0 for each group."""
    first_rows = _first_of_each(changed_rows)
    return with_columns(
        without_columns(first_rows, *STATE_COLUMNS), {MULTIPLICITY: np.zeros(first_rows.num_rows, dtype=np.int64)}
    )


def _first_of_each(rows: pa.RecordBatch) -> pa.RecordBatch:
    """One row of each group."""
    order = argsort_by_group(rows)
    return take_rows(rows, order[firsts(member_groups(take_rows(rows.select([ORDER, SECOND_HASH]), order)))])
