"""The newest row of each key: by event time, where there is one, and then in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    EVENTS,
    HASH,
    MOMENT,
    OFFSET,
    SECOND_HASH,
    Outcome,
    Times,
    events_of,
    hashes_of,
    keyed,
    run_schema,
    weighted,
)
from penstock.engine.state.arrangement import Arrangement, Replacing
from penstock.engine.state.columns import GONE, ID, ORDER
from penstock.engine.state.rows import Numbers, hashes, integers, mask, picked, taken, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Mask, by_key, firsts


@dataclass(frozen=True, slots=True)
class Latest:
    """`order` names the columns by which rows are ordered, the most important first; they hold whole numbers.

    `_gone` marks rows that delete their key. A deleted key is forgotten, so rows with such marks must come in order.
    """

    state: str
    upserts: bool = False
    order: tuple[str, ...] = (MOMENT, OFFSET)

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {GONE: pa.bool_()}, (HASH, SECOND_HASH, EVENTS))

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        new = sorted_run(self._newest_of_each(self._rows(changes))).batch
        old, there = arrangement.look_up(hashes(new, ORDER), hashes(new, ID))
        newer = ~there
        newer[there] = self._after(picked(new, there), old)
        new, old, there = picked(new, newer), picked(old, newer[there]), there[newer]
        lives = ~mask(new.column(GONE))
        taken_back = picked(old, ~lives[there]) if self.upserts else old
        output = [weighted(taken_back, -1), weighted(picked(new, lives), 1)]
        return Outcome(output, Run(picked(new, lives | there)), {"events": int(events_of(changes).sum())})

    def _rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        rows = keyed(changes, *hashes_of(changes))
        if GONE not in rows.schema.names:
            rows = with_columns(rows, {GONE: np.zeros(rows.num_rows, dtype=np.bool_)})
        return rows.select(self.schema(changes.schema).names)

    def _newest_of_each(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        order, id_ = hashes(rows, ORDER), hashes(rows, ID)
        at = by_key(order, id_, *_telling(self._ages(rows)))
        begins = firsts(order[at], id_[at])
        return taken(rows, at[np.append(begins[1:], True)[: len(begins)]])

    def _after(self, new: pa.RecordBatch, old: pa.RecordBatch) -> Mask:
        """Which new rows come after the old ones."""
        after = np.zeros(new.num_rows, dtype=np.bool_)
        equal = ~after
        for one, other in zip(self._ages(new), self._ages(old), strict=True):
            after |= equal & (one > other)
            equal &= one == other
        return after

    def _ages(self, rows: pa.RecordBatch) -> list[Numbers]:
        return [integers(rows, name) for name in self.order]


def _telling(ages: list[Numbers]) -> list[Numbers]:
    """The columns without those by which sorting changes nothing: it takes most of the time of a step."""
    ages = [age for age in ages if len(age) and age.min() < age.max()]
    in_order = len(ages) == 1 and bool((ages[0][1:] >= ages[0][:-1]).all())
    return [] if in_order else ages
