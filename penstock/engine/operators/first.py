"""The first row of those that agree in some columns: of all of them, or of each burst.

Rows are ordered by event time and then by their place in the log. A row counts if none of its key came less than `within`
before it. So a late row can take the place of one that was first before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    HASH,
    SECOND_HASH,
    WEIGHT,
    Outcome,
    Times,
    hashes_of,
    integers,
    with_columns,
    without_columns,
)
from penstock.engine.operators.newest import MOMENT
from penstock.engine.operators.regroup import ROW_HASH
from penstock.engine.operators.segments import segments
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.arrangement import Adding, Arrangement, Keep
from penstock.engine.state.run import ID, ORDER, hashes, sorted_run
from penstock.engine.state.search import firsts


@dataclass(frozen=True, slots=True)
class First:
    """`within` and `keep_after` in microseconds; `within` is None for ever. `place` names the columns that order rows
    of one time. With `grows` no row is ever taken away, and without `within` only the first row of each key is kept."""

    state: str
    within: int | None
    keep_after: int
    place: tuple[str, ...]
    grows: bool

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        fields = [pa.field(one.name, one.type) for one in changes if one.name not in (HASH, ROW_HASH)]
        return pa.schema([*fields, pa.field(ORDER, pa.int64()), pa.field(ID, pa.int64())])

    def keep(self, times: Times) -> Keep | None:
        if self.within is None:
            return None
        reach = self.within + self.keep_after
        return lambda rows: integers(rows, MOMENT) + reach > times.after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        counts = {"events": int(np.abs(integers(changes, COUNT)).sum())}
        if self.within is not None:
            late = integers(changes, MOMENT) + self.keep_after <= times.before
            if late.any():
                counts["late"] = int(np.abs(integers(changes, COUNT)[late]).sum())
                counts["late_groups"] = int(late.sum())
                changes = changes.filter(pa.array(~late))
        first, _ = hashes_of(changes)
        rows = with_columns(changes, {ORDER: first.view(np.int64), ID: changes.column(ROW_HASH)})
        part = sorted_run(rows.select(self.schema(changes.schema).names))
        before = arrangement.of_orders(np.unique(part.order))
        after = self.kind.merged(before, part)
        old, new = self._firsts(before.batch), self._firsts(after.batch)
        gone = ~np.isin(hashes(old, ID), hashes(new, ID))
        come = ~np.isin(hashes(new, ID), hashes(old, ID))
        taken, given = old.filter(pa.array(gone)), new.filter(pa.array(come))
        counts["duplicates"] = counts["events"] - counts.get("late", 0) - given.num_rows + taken.num_rows
        run = part
        if self.grows and self.within is None:
            kept = with_columns(given, {COUNT: np.ones(given.num_rows, dtype=np.int64)})
            run = sorted_run(pa.concat_batches([kept, with_columns(taken, {COUNT: -integers(taken, COUNT)})]))
        return Outcome([_weighted(taken, -1), _weighted(given, 1)], run, counts)

    def _firsts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = [hashes(rows, ID), *(integers(rows, name) for name in reversed(self.place))]
        order = np.lexsort([*keys, integers(rows, MOMENT), integers(rows, SECOND_HASH), integers(rows, ORDER)])
        rows = rows.take(pa.array(order))
        group = segments(integers(rows, ORDER), integers(rows, SECOND_HASH))
        begins = firsts(group)
        if self.within is not None and rows.num_rows:
            moment = integers(rows, MOMENT)
            begins[1:] |= moment[1:] - moment[:-1] >= self.within
        return rows.filter(pa.array(begins))


def _weighted(rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
    bare = without_columns(rows, ORDER, ID, SECOND_HASH, COUNT)
    return with_columns(bare, {WEIGHT: np.full(rows.num_rows, weight, dtype=np.int64)})

