"""The first rows of each group in an order, with their ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.operators.contract import HASH, ROW_HASH, SECOND_HASH, WEIGHT, Outcome, Times, events_of, hashes_of
from penstock.engine.operators.members import MEMBERS, OWN, members, members_schema, missing
from penstock.engine.operators.sorted_groups import segments
from penstock.engine.state.arrangement import Adding, Arrangement
from penstock.engine.state.columns import COUNT, ID, ORDER
from penstock.engine.state.rows import (
    Column,
    Numbers,
    hashes,
    integers,
    mask,
    picked,
    stacked,
    taken,
    with_columns,
    without_columns,
)
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import NOWHERE, Mask, Positions, distinct, firsts, positions

RANK = "rank"
COPIES = "_copies"


@dataclass(frozen=True, slots=True)
class Top:
    """`order` names columns and says which of them descend; `ties`: rows equal in them share a rank.

    With `grows` no row is ever taken away, and only rows among the first `count` are kept. Where groups are of windows,
    `end` names the column with their end, `keep_after` which nothing of them changes any more.
    """

    state: str
    count: int
    order: tuple[tuple[str, bool], ...]
    ties: bool
    grows: bool
    end: str | None = None
    keep_after: int = 0

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return members_schema(changes)

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        if self.end is None:
            return None
        ends: Numbers = rows.column(self.end).cast(pa.int64()).to_numpy()
        return ends + self.keep_after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        part = members(changes, hashes_of(changes)[0])
        before = arrangement.of_orders(distinct(part.order))
        old, new = self._ranked(before), self._ranked(MEMBERS.merged(before, part))
        run = _moves(before, new) if self.grows else part
        return Outcome(_difference(old, new), run, {"events": int(events_of(changes).sum())})

    def condensed(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Some of an epoch's changes without rows that are not among the first of these; how many events those are."""
        if not self.grows:
            return changes, 0
        at, _ = self._first(changes, HASH, ROW_HASH)
        kept = taken(changes, np.unique(at))
        return kept, int(events_of(changes).sum() - events_of(kept).sum())

    def _ranked(self, run: Run) -> pa.RecordBatch:
        """The rows among the first of their group, with their rank; one that is there twice stands twice."""
        rows = picked(run.batch, integers(run.batch, COUNT) > 0)
        at, rank = self._first(rows, ORDER, ID)
        copies = integers(rows, COUNT)[at] if self.ties else np.ones(len(at), dtype=np.int64)
        return with_columns(taken(rows, at), {RANK: rank.astype(np.int32), COPIES: copies})

    def _first(self, rows: pa.RecordBatch, hash_: str, id_: str) -> tuple[Positions, Numbers]:
        """Where the rows among the first of their group are, and their ranks; without `ties` each copy has its own."""
        keys = [(hash_, False), (SECOND_HASH, False), *self.order, (id_, False)]
        # Only what is sorted by is put in order: rows may be wide, and most are not among the first.
        narrow = rows.select([*(name for name, _ in keys), COUNT])
        order = pc.sort_indices(
            narrow, sort_keys=[(name, "descending" if descends else "ascending") for name, descends in keys]
        )
        at: Positions = order.to_numpy().astype(np.int64)
        if not self.ties:
            at = np.repeat(at, np.minimum(integers(rows, COUNT)[at], self.count))
        narrow = taken(narrow, at)
        rank = self._ranks(narrow, segments(integers(narrow, hash_), integers(narrow, SECOND_HASH)))
        first = rank <= self.count
        return at[first], rank[first]

    def _ranks(self, rows: pa.RecordBatch, group: Numbers) -> Numbers:
        begins = firsts(group)
        if not self.ties:
            return np.arange(rows.num_rows) - np.flatnonzero(begins)[group] + 1
        copies = integers(rows, COUNT)
        ahead = np.cumsum(copies) - copies
        place = ahead - ahead[begins][group]
        for name, _ in self.order:
            begins |= _differs(rows.column(name))
        leaders = np.flatnonzero(begins)
        rank: Numbers = place[leaders][np.cumsum(begins) - 1] + 1
        return rank


def _differs(column: Column) -> Mask:
    """Which values of a sorted column differ from the one before; nulls are equal, and so are NaNs."""
    differs = np.ones(len(column), dtype=np.bool_)
    one, other = column[1:], column[:-1]
    equal = pc.equal(one, other)
    if pa.types.is_floating(column.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    same = pc.coalesce(equal, pc.and_(pc.is_null(one), pc.is_null(other)))
    differs[1:] = ~mask(same)
    return differs


def _difference(old: pa.RecordBatch, new: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The old ranked rows taken back and the new ones given, without those that are the same in both."""
    old_key, new_key = _with_rank_in_id(old), _with_rank_in_id(new)
    gone, come = missing(old_key, new_key), missing(new_key, old_key)
    return [_weighted(picked(old, gone), -1), _weighted(picked(new, come), 1)]


def _with_rank_in_id(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with ids that also tell their ranks apart, and how often they are there."""
    mixed = hashes(rows, ID)
    ranks = rows.column(RANK).to_numpy().astype(np.uint64)
    for numbers, factor in ((ranks, 0xBF58476D1CE4E5B9), (hashes(rows, COPIES), 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(factor) + numbers
    return with_columns(rows.select([ORDER]), {ID: mixed.view(np.int64)})


def _weighted(rows: pa.RecordBatch, sign: int) -> pa.RecordBatch:
    return with_columns(without_columns(rows, *OWN, COPIES), {WEIGHT: sign * integers(rows, COPIES)})


def _moves(before: Run, ranked: pa.RecordBatch) -> Run:
    """What makes the state hold exactly the ranked rows: those that are new, and takings of those that fell out."""
    stays = sorted_run(without_columns(ranked, RANK, COPIES))
    stays = Run(picked(stays.batch, firsts(stays.order, stays.id)))
    at = positions(before.order, before.id, stays.order, stays.id)
    known = at != NOWHERE
    more = integers(stays.batch, COUNT).copy()
    more[known] -= integers(before.batch, COUNT)[at[known]]
    arrived = picked(with_columns(stays.batch, {COUNT: more}), more != 0)
    fallen = picked(before.batch, missing(before.batch, stays.batch))
    fallen = with_columns(fallen, {COUNT: -integers(fallen, COUNT)})
    return sorted_run(stacked([arrived, fallen], arrived.schema))
