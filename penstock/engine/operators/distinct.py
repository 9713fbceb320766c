"""The first row of those that agree in some columns: of all of them, or of each burst.

Rows are ordered by event time and then by their place in the log. A row counts if none of its key came less than
`within` before it. So a late row can take the place of one that was first before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import DEADLINE, MOMENT, Outcome, Times, hashes_of, on_time, weighted
from penstock.engine.operators.members import MEMBERS, OWN, by_group, groups, members, members_schema, missing
from penstock.engine.state.arrangement import Adding, Arrangement
from penstock.engine.state.columns import COUNT, ID
from penstock.engine.state.rows import Numbers, hashes, integers, picked, stacked, taken, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import distinct, firsts


@dataclass(frozen=True, slots=True)
class Distinct:
    """`within` and `keep_after` in microseconds; `within` is None for ever.

    `keep_after` is the longest time after which an event can still come that is not too late.

    `place` names the columns that order rows of one time. With `grows` no row is ever taken away, and without `within`
    only the first row of each key is kept.
    """

    state: str
    within: int | None
    keep_after: int
    place: tuple[str, ...]
    grows: bool

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return members_schema(changes)

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None if self.within is None else integers(rows, MOMENT) + self.within + self.keep_after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        late = integers(changes, DEADLINE) <= times.before
        changes, counts = on_time(changes, late)
        part = members(changes, hashes_of(changes)[0])
        before = arrangement.of_orders(distinct(part.order))
        old, new = self._firsts(before), self._firsts(MEMBERS.merged(before, part))
        gone, come = picked(old, missing(old, new)), picked(new, missing(new, old))
        counts["duplicates"] = counts["events"] - counts.get("late", 0) - come.num_rows + gone.num_rows
        run = self._only_firsts(gone, come) if self.grows and self.within is None else part
        return Outcome([weighted(gone, -1, *OWN), weighted(come, 1, *OWN)], run, counts)

    def _firsts(self, run: Run) -> pa.RecordBatch:
        there = picked(run.batch, integers(run.batch, COUNT) > 0)
        place = [integers(there, name) for name in self.place]
        rows = taken(there, by_group(there, integers(there, MOMENT), *place, hashes(there, ID)))
        begins = firsts(groups(rows))
        if self.within is not None:
            moment = integers(rows, MOMENT)
            begins[1:] |= moment[1:] - moment[:-1] >= self.within
        return picked(rows, begins)

    def _only_firsts(self, gone: pa.RecordBatch, come: pa.RecordBatch) -> Run:
        """What makes the state hold the first rows and no others."""
        added = with_columns(come, {COUNT: np.ones(come.num_rows, dtype=np.int64)})
        taken_away = with_columns(gone, {COUNT: -integers(gone, COUNT)})
        return sorted_run(stacked([added, taken_away], come.schema))
