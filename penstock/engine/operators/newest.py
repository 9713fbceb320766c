"""The newest row of each key: by event time, where there is one, and then in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    Outcome,
    Times,
    hashes_of,
    integers,
    keyed,
    run_schema,
    weighted,
    with_columns,
    without_columns,
)
from penstock.engine.state.arrangement import GONE, Arrangement, Keep, Replacing
from penstock.engine.state.run import ID, ORDER, sorted_run
from penstock.engine.state.search import firsts

MOMENT = "_time"
OFFSET = "_offset"


@dataclass(frozen=True, slots=True)
class Newest:
    """Rows have `_time` and `_offset`, by which they are ordered; `_gone` marks those that delete their key."""

    state: str
    upserts: bool = False

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {GONE: pa.bool_()})

    def keep(self, times: Times) -> Keep | None:
        return None

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        counts = {"events": changes.num_rows}
        new = _newest_of_each(self._rows(changes))
        run = sorted_run(new)
        old, there = arrangement.look_up(run.order, run.id)
        # A row that deletes its key is remembered with its place in the order only as long as nothing newer comes.
        newer = ~there | _after(run.batch, old)
        new, old, there = run.batch.filter(pa.array(newer)), old.filter(pa.array(newer)), there[newer]
        lives = ~new.column(GONE).to_numpy(zero_copy_only=False).astype(np.bool_)
        taken_back = there & ~lives if self.upserts else there
        output = [weighted(old.filter(pa.array(taken_back)), -1), weighted(new.filter(pa.array(lives)), 1)]
        return Outcome(output, sorted_run(new.filter(pa.array(lives | there))), counts)

    def _rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        order, id_ = hashes_of(changes)
        rows = keyed(changes, order, id_)
        if GONE not in rows.schema.names:
            rows = with_columns(rows, {GONE: np.zeros(rows.num_rows, dtype=np.bool_)})
        return rows.select(self.schema(changes.schema).names)


def _newest_of_each(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rows.column(name).to_numpy() for name in (OFFSET, MOMENT, ID, ORDER)]
    order = np.lexsort(columns)
    begins = firsts(columns[3][order], columns[2][order])
    lasts = np.append(begins[1:], True)[: len(begins)]
    return rows.take(pa.array(order[lasts]))


def _after(new: pa.RecordBatch, old: pa.RecordBatch) -> np.ndarray:
    """Where the new row is later than the old one; where there is no old one it does not matter."""
    old_time = old.column(MOMENT).fill_null(0).to_numpy(zero_copy_only=False)
    old_offset = old.column(OFFSET).fill_null(0).to_numpy(zero_copy_only=False)
    time, offset = integers(new, MOMENT), integers(new, OFFSET)
    return (time > old_time) | ((time == old_time) & (offset > old_offset))
