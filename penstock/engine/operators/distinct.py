"""The first of the rows that agree in some columns: of all of them, or of each burst.

Rows are ordered by event time, then by their offset in the log. A row is a first one if no row of its key is less than
`within` before it. So a late row can replace one that was first until now.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import DEADLINE, MOMENT, Outcome, Watermarks, as_changes, drop_late, hashes_of
from penstock.engine.operators.members import (
    MEMBERS,
    STATE_COLUMNS,
    MemberState,
    argsort_by_group,
    member_groups,
    member_run,
    missing_from,
)
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, ID
from penstock.engine.state.rows import Numbers, concat_rows, filter_rows, hashes, integers, take_rows, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import firsts, unique


@dataclass(frozen=True, slots=True)
class Distinct(MemberState):
    """`within` and `keep_after` are in microseconds. Without `within` a key has one first row, forever.

    `keep_after` is how long after its time an event can come at most without being late. `tie_breakers` are the columns
    that order rows of the same time. With `grows` rows are never retracted; then, without `within`, the state holds
    only the first row of each key.
    """

    state: str
    within: int | None
    keep_after: int
    tie_breakers: tuple[str, ...]
    grows: bool

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None if self.within is None else integers(rows, MOMENT) + self.within + self.keep_after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        late = integers(changes, DEADLINE) <= watermarks.before
        changes, counts = drop_late(changes, late)
        part = member_run(changes, hashes_of(changes)[0])
        before = arrangement.rows_of_orders(unique(part.order))
        old, new = self._first_rows(before), self._first_rows(MEMBERS.merge(before, part))
        replaced_rows, new_rows = filter_rows(old, missing_from(old, new)), filter_rows(new, missing_from(new, old))
        counts["duplicates"] = counts["events"] - counts.get("late", 0) - new_rows.num_rows + replaced_rows.num_rows
        run = self._difference_of_firsts(replaced_rows, new_rows) if self.grows and self.within is None else part
        return Outcome(
            [as_changes(replaced_rows, -1, *STATE_COLUMNS), as_changes(new_rows, 1, *STATE_COLUMNS)], run, counts
        )

    def _first_rows(self, run: Run) -> pa.RecordBatch:
        present = filter_rows(run.batch, integers(run.batch, COUNT) > 0)
        tie_breakers = [integers(present, name) for name in self.tie_breakers]
        rows = take_rows(
            present, argsort_by_group(present, integers(present, MOMENT), *tie_breakers, hashes(present, ID))
        )
        begins = firsts(member_groups(rows))
        if self.within is not None:
            moment = integers(rows, MOMENT)
            begins[1:] |= moment[1:] - moment[:-1] >= self.within
        return filter_rows(rows, begins)

    def _difference_of_firsts(self, replaced_rows: pa.RecordBatch, new_rows: pa.RecordBatch) -> Run:
        """The run that makes the state hold the first rows and no others."""
        added_rows = with_columns(new_rows, {COUNT: np.ones(new_rows.num_rows, dtype=np.int64)})
        removed_rows = with_columns(replaced_rows, {COUNT: -integers(replaced_rows, COUNT)})
        return sorted_run(concat_rows([added_rows, removed_rows], new_rows.schema))
