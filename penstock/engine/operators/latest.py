"""The newest row of each key: by event time, if there is one, then in the order of the log."""

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
    Watermarks,
    events_of,
    hashes_of,
    replacement_changes,
    run_schema,
    with_run_key,
)
from penstock.engine.state.arrangement import Arrangement, Replacing
from penstock.engine.state.columns import GONE, ID, ORDER
from penstock.engine.state.rows import Numbers, filter_rows, hashes, integers, mask, take_rows, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Mask, argsort_by_key, firsts, lasts


@dataclass(frozen=True, slots=True)
class Latest:
    """`order` names the columns of whole numbers by which rows are ordered, the most important first.

    `_gone` marks rows that delete their key. The state forgets a deleted key, so such rows must come in order.
    """

    state: str
    upserts: bool = False
    order: tuple[str, ...] = (MOMENT, OFFSET)

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {GONE: pa.bool_()}, (HASH, SECOND_HASH, EVENTS))

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        new = sorted_run(self._newest_of_each(self._state_rows(changes))).batch
        old, has_old = arrangement.look_up(hashes(new, ORDER), hashes(new, ID))
        newer = ~has_old
        newer[has_old] = self._is_newer(filter_rows(new, has_old), old)
        new, old, has_old = filter_rows(new, newer), filter_rows(old, newer[has_old]), has_old[newer]
        is_live = ~mask(new.column(GONE))
        output = replacement_changes(old, has_old, new, is_live, upserts=self.upserts)
        return Outcome(output, Run(filter_rows(new, is_live | has_old)), {"events": int(events_of(changes).sum())})

    def _state_rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        rows = with_run_key(changes, *hashes_of(changes))
        if GONE not in rows.schema.names:
            rows = with_columns(rows, {GONE: np.zeros(rows.num_rows, dtype=np.bool_)})
        return rows.select(self.schema(changes.schema).names)

    def _newest_of_each(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        order, id_ = hashes(rows, ORDER), hashes(rows, ID)
        at = argsort_by_key(order, id_, *_relevant_ages(self._ages(rows)))
        begins = firsts(order[at], id_[at])
        return take_rows(rows, at[lasts(begins)])

    def _is_newer(self, new: pa.RecordBatch, old: pa.RecordBatch) -> Mask:
        """Which new rows are newer than the old ones."""
        newer = np.zeros(new.num_rows, dtype=np.bool_)
        equal = ~newer
        for new_age, old_age in zip(self._ages(new), self._ages(old), strict=True):
            newer |= equal & (new_age > old_age)
            equal &= new_age == old_age
        return newer

    def _ages(self, rows: pa.RecordBatch) -> list[Numbers]:
        return [integers(rows, name) for name in self.order]


def _relevant_ages(ages: list[Numbers]) -> list[Numbers]:
    """The columns that matter for sorting, which takes most of the time of a step."""
    ages = [age for age in ages if len(age) and age.min() < age.max()]
    in_order = len(ages) == 1 and bool((ages[0][1:] >= ages[0][:-1]).all())
    return [] if in_order else ages
