"""Top-n: the first rows of each group in some order, with their ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.operators.contract import (
    HASH,
    ROW_HASH,
    SECOND_HASH,
    WEIGHT,
    Outcome,
    Watermarks,
    events_of,
    hashes_of,
)
from penstock.engine.operators.members import MEMBERS, STATE_COLUMNS, MemberState, member_run, missing_from
from penstock.engine.operators.sorted_groups import group_numbers
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, ID, ORDER
from penstock.engine.state.rows import (
    Column,
    Numbers,
    concat_rows,
    filter_rows,
    hashes,
    integers,
    mask,
    take_rows,
    with_columns,
    without_columns,
)
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import NOWHERE, Mask, Positions, firsts, positions, unique

RANK = "rank"
COPIES = "_copies"


@dataclass(frozen=True, slots=True)
class Top(MemberState):
    """`order` names columns and says which of them descend. With `ties`, rows that are equal in these share a rank.

    With `grows` rows are never retracted, and the state holds only those among the first `count`. For groups of
    windows, `end` names the column with the end of the window, and nothing changes any more `keep_after` later.
    """

    state: str
    count: int
    order: tuple[tuple[str, bool], ...]
    ties: bool
    grows: bool
    end: str | None = None
    keep_after: int = 0

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        if self.end is None:
            return None
        ends: Numbers = rows.column(self.end).cast(pa.int64()).to_numpy()
        return ends + self.keep_after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        part = member_run(changes, hashes_of(changes)[0])
        before = arrangement.rows_of_orders(unique(part.order))
        old, new = self._ranked_rows(before), self._ranked_rows(MEMBERS.merge(before, part))
        run = _state_changes(before, new) if self.grows else part
        return Outcome(_difference(old, new), run, {"events": int(events_of(changes).sum())})

    def condense(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Drop rows that are not even among the first of these changes; and how many events that was."""
        if not self.grows:
            return changes, 0
        at, _ = self._first_positions(changes, HASH, ROW_HASH)
        kept_rows = take_rows(changes, np.unique(at))
        return kept_rows, int(events_of(changes).sum() - events_of(kept_rows).sum())

    def _ranked_rows(self, run: Run) -> pa.RecordBatch:
        """The rows among the first of their group, with their ranks; without `ties` each copy of a row is a row."""
        rows = filter_rows(run.batch, integers(run.batch, COUNT) > 0)
        at, rank = self._first_positions(rows, ORDER, ID)
        copies = integers(rows, COUNT)[at] if self.ties else np.ones(len(at), dtype=np.int64)
        return with_columns(take_rows(rows, at), {RANK: rank.astype(np.int32), COPIES: copies})

    def _first_positions(self, rows: pa.RecordBatch, hash_: str, id_: str) -> tuple[Positions, Numbers]:
        """The positions of rows among the first of their group, and their ranks; without `ties` one for each copy."""
        keys = [(hash_, False), (SECOND_HASH, False), *self.order, (id_, False)]
        # Only the columns of the order are sorted: rows may be wide, and most are not among the first.
        narrow = rows.select([*(name for name, _ in keys), COUNT])
        order = pc.sort_indices(
            narrow, sort_keys=[(name, "descending" if descends else "ascending") for name, descends in keys]
        )
        at: Positions = order.to_numpy().astype(np.int64)
        if not self.ties:
            at = np.repeat(at, np.minimum(integers(rows, COUNT)[at], self.count))
        narrow = take_rows(narrow, at)
        rank = self._ranks(narrow, group_numbers(integers(narrow, hash_), integers(narrow, SECOND_HASH)))
        first = rank <= self.count
        return at[first], rank[first]

    def _ranks(self, rows: pa.RecordBatch, group: Numbers) -> Numbers:
        begins = firsts(group)
        if not self.ties:
            return np.arange(rows.num_rows) - np.flatnonzero(begins)[group] + 1
        copies = integers(rows, COUNT)
        rows_so_far = np.cumsum(copies) - copies
        rows_before = rows_so_far - rows_so_far[begins][group]
        for name, _ in self.order:
            begins |= _differs(rows.column(name))
        leaders = np.flatnonzero(begins)
        rank: Numbers = rows_before[leaders][np.cumsum(begins) - 1] + 1
        return rank


def _differs(column: Column) -> Mask:
    """Which values of a sorted column differ from the previous one; nulls are equal, and so are NaNs."""
    differs = np.ones(len(column), dtype=np.bool_)
    values, previous = column[1:], column[:-1]
    equal = pc.equal(values, previous)
    if pa.types.is_floating(column.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(values), pc.is_nan(previous)))
    same = pc.coalesce(equal, pc.and_(pc.is_null(values), pc.is_null(previous)))
    differs[1:] = ~mask(same)
    return differs


def _difference(old: pa.RecordBatch, new: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Retract the old ranked rows and add the new ones, but for those that are in both."""
    old_key, new_key = _with_rank_in_id(old), _with_rank_in_id(new)
    is_gone, is_new = missing_from(old_key, new_key), missing_from(new_key, old_key)
    return [_as_changes(filter_rows(old, is_gone), -1), _as_changes(filter_rows(new, is_new), 1)]


def _with_rank_in_id(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The keys of ranked rows, with ids that also depend on the rank and the number of copies."""
    bits = hashes(rows, ID)
    ranks = rows.column(RANK).to_numpy().astype(np.uint64)
    for numbers, factor in ((ranks, 0xBF58476D1CE4E5B9), (hashes(rows, COPIES), 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(31))) * np.uint64(factor) + numbers
    return with_columns(rows.select([ORDER]), {ID: bits.view(np.int64)})


def _as_changes(rows: pa.RecordBatch, sign: int) -> pa.RecordBatch:
    return with_columns(without_columns(rows, *STATE_COLUMNS, COPIES), {WEIGHT: sign * integers(rows, COPIES)})


def _state_changes(before: Run, ranked_rows: pa.RecordBatch) -> Run:
    """The run that makes the state hold exactly the ranked rows: new ones added, those that fell out removed."""
    ranked_run = sorted_run(without_columns(ranked_rows, RANK, COPIES))
    ranked_run = Run(filter_rows(ranked_run.batch, firsts(ranked_run.order, ranked_run.id)))
    at = positions(before.order, before.id, ranked_run.order, ranked_run.id)
    was_known = at != NOWHERE
    added_counts = integers(ranked_run.batch, COUNT).copy()
    added_counts[was_known] -= integers(before.batch, COUNT)[at[was_known]]
    added_rows = filter_rows(with_columns(ranked_run.batch, {COUNT: added_counts}), added_counts != 0)
    dropped_rows = filter_rows(before.batch, missing_from(before.batch, ranked_run.batch))
    dropped_rows = with_columns(dropped_rows, {COUNT: -integers(dropped_rows, COUNT)})
    return sorted_run(concat_rows([added_rows, dropped_rows], added_rows.schema))
