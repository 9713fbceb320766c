"""Joins on a key, and within bounds of time where these are given.

The state holds the rows of both sides, and a change on one side is joined with the rows of the other.

An epoch never emits a row that it retracts itself. A pair changes only if one of its rows does, so three kinds of pairs
are looked at, each once: changed with changed, changed with unchanged, unchanged with changed. The count of a pair is
the product of the counts of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    MOMENT,
    SECOND_HASH,
    WEIGHT,
    PairOutcome,
    Watermarks,
    drop_late,
    hashes_of,
    old_numbers,
)
from penstock.engine.operators.members import (
    STATE_COLUMNS,
    TimeIndex,
    argsort_by_group,
    in_groups_of,
    member_run,
    missing_from,
)
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, NO_RIGHT_KEY, SIDE, SideRows
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT
from penstock.engine.state.rows import Numbers, concat_rows, filter_rows, hashes, integers, mask, null_rows, take_rows
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Hashes, Mask, Positions, unique

# Pairs are emitted this many at a time, since one key may have millions of them.
PIECE_PAIRS = 128 * 1024

JoinType = Literal["inner", "left", "right", "full", "semi", "anti"]
_KEEPS_LEFT = ("left", "full", "semi", "anti")
_UNMATCHED_LEFT = ("left", "full", "anti")
_KEEPS_RIGHT = ("right", "full")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much later than a left row its right partner may be: from -`before` to `after`, both included.

    A row without a partner is emitted once no partner can come that is on time. A late partner still corrects that, up
    to `keep` after the last time a partner can have.
    """

    before: int
    after: int
    keep: int


@dataclass(frozen=True, slots=True)
class Side(SideRows):
    """The rows of one side. The names of its columns begin with `prefix`.

    With `bounds` a row is kept for `kept_for` after it happened, else forever.
    """

    prefix: str
    bounds: Bounds | None = None
    kept_for: int = 0

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None if self.bounds is None else integers(rows, MOMENT) + (self.kept_for + 1)

    @property
    def user_columns(self) -> list[str]:
        """The user's columns."""
        return self.columns.user_columns(self.prefix)

    def wait(self) -> int:
        """How much later than a row its partner may be."""
        assert self.bounds is not None
        return self.bounds.after if self.prefix == LEFT else self.bounds.before

    def reaches(self, moments: Numbers) -> tuple[Numbers, Numbers]:
        """For rows with these times, the first and the last time that a partner may have."""
        assert self.bounds is not None
        back, ahead = (self.bounds.before, self.bounds.after)[:: 1 if self.prefix == LEFT else -1]
        return moments - back, moments + ahead


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The rows of a side that an epoch changes, with their counts before and after it."""

    rows: Run
    before: Numbers
    after: Numbers


@dataclass(frozen=True, slots=True)
class AffectedRows:
    """The rows of one side that an epoch affects: those it changes, and others that may gain or lose a partner."""

    changed: ChangedRows
    unchanged: Run


def affected_rows(arrangement: Arrangement, part: Run, needed_keys: list[Hashes]) -> AffectedRows:
    """The affected rows of a side: `part` is what the epoch changes, `needed_keys` have the orders of other rows."""
    old, has_old = arrangement.look_up(part.order, part.id)
    before = old_numbers(old, has_old, COUNT)
    rows = arrangement.rows_of_orders(unique(np.sort(np.concatenate(needed_keys))))
    unchanged = Run(filter_rows(rows.batch, missing_from(rows.batch, part.batch)))
    return AffectedRows(ChangedRows(part, before, before + integers(part.batch, COUNT)), unchanged)


@dataclass(frozen=True, slots=True)
class AffectedSide:
    """A side, and the rows of it that an epoch affects."""

    side: Side
    rows: AffectedRows

    @property
    def changed(self) -> ChangedRows:
        return self.rows.changed

    @property
    def unchanged(self) -> Run:
        return self.rows.unchanged

    def has_partner(self, rows: Run, side: Side, *, after: bool) -> Mask:
        """Which rows of the other side have a partner here, before the epoch or after it."""
        counts = self.changed.after if after else self.changed.before
        names = [*STATE_COLUMNS, *([MOMENT] if self.side.bounds else [])]
        changed, unchanged = self.changed.rows.batch.select(names), self.unchanged.batch.select(names)
        partners = sorted_run(concat_rows([filter_rows(changed, counts > 0), unchanged], unchanged.schema))
        if self.side.bounds is None:
            return in_groups_of(rows, partners)
        low, high = _Partners(partners).ranges(rows, side)
        has_any: Mask = high > low
        return has_any


@dataclass(frozen=True, slots=True)
class Join:
    """`how` says which rows without a partner are emitted."""

    left: Side
    right: Side
    how: JoinType

    def step(
        self, changes: pa.RecordBatch, left: Arrangement, right: Arrangement, watermarks: Watermarks
    ) -> PairOutcome:
        of_right = mask(changes.column(SIDE))
        left_part, left_counts = self._part_of_side(changes, ~of_right, self.left, watermarks)
        right_part, right_counts = self._part_of_side(changes, of_right, self.right, watermarks)
        left_closing = self._closing_keys(self.left, left, watermarks)
        right_closing = self._closing_keys(self.right, right, watermarks)
        left_keys, right_keys = [right_part.order, *left_closing], [left_part.order, *right_closing]
        if self.how in _KEEPS_LEFT:  # it matters whether a row still has any partner
            right_keys += [right_part.order, *left_closing]
        if self.how in _KEEPS_RIGHT:
            left_keys += [left_part.order, *right_closing]
        left_side = AffectedSide(self.left, affected_rows(left, left_part, left_keys))
        right_side = AffectedSide(self.right, affected_rows(right, right_part, right_keys))
        output = self._output(left_side, right_side, changes.schema, watermarks)
        runs = self._rows_to_keep(left_part), self._rows_to_keep(right_part)
        return PairOutcome(output, *runs, left_counts, right_counts)

    def _closing_keys(self, side: Side, arrangement: Arrangement, watermarks: Watermarks) -> list[Hashes]:
        """The keys of rows whose time for partners ends in this epoch: those without one are emitted."""
        if side.bounds is None or self.how not in (_UNMATCHED_LEFT if side.prefix == LEFT else _KEEPS_RIGHT):
            return []
        ends = [(run.order, integers(run.batch, MOMENT) + side.wait()) for run in arrangement.runs]
        return [order[(end >= watermarks.before) & (end < watermarks.after)] for order, end in ends]

    def _rows_to_keep(self, part: Run) -> Run:
        """The rows without those that can never have a partner and need not wait for the watermark."""
        if self.left.bounds is not None:
            return part
        keyless = np.isin(integers(part.batch, SECOND_HASH), (NO_LEFT_KEY, NO_RIGHT_KEY))
        return Run(filter_rows(part.batch, ~keyless))

    def _part_of_side(
        self, changes: pa.RecordBatch, of_side: Mask, side: Side, watermarks: Watermarks
    ) -> tuple[Run, dict[str, int]]:
        rows = side.columns.rows(changes, of_side)
        late = np.zeros(rows.num_rows, dtype=np.bool_)
        if side.bounds is not None:
            late = integers(rows, MOMENT) + (side.wait() + side.bounds.keep) < watermarks.before
        rows, counts = drop_late(rows, late)
        return member_run(rows, hashes_of(rows)[0]), counts

    def _output(
        self, left: AffectedSide, right: AffectedSide, schema: pa.Schema, watermarks: Watermarks
    ) -> Iterator[pa.RecordBatch]:
        left_names, right_names = self.left.user_columns, self.right.user_columns
        if self.how in ("semi", "anti"):
            for rows, weights in _match_changes(left, right, watermarks, matched=self.how == "semi"):
                yield repeat_rows([rows.select(left_names)], weights)
            return
        for left_rows, right_rows, weights in _changed_pairs(left, right):
            yield repeat_rows([left_rows.select(left_names), right_rows.select(right_names)], weights)
        if self.how in _KEEPS_LEFT:
            null_schema = pa.schema([self.right.schema(schema).field(name) for name in right_names])
            for rows, weights in _match_changes(left, right, watermarks, matched=False):
                yield repeat_rows([rows.select(left_names), null_rows(null_schema, rows.num_rows)], weights)
        if self.how in _KEEPS_RIGHT:
            null_schema = pa.schema([self.left.schema(schema).field(name) for name in left_names])
            for rows, weights in _match_changes(right, left, watermarks, matched=False):
                yield repeat_rows([null_rows(null_schema, rows.num_rows), rows.select(right_names)], weights)


def _changed_pairs(left: AffectedSide, right: AffectedSide) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, Numbers]]:
    """The pairs that the epoch changes: the rows of both sides, and by how much the count of the pair changes."""
    left_changed, right_changed = left.changed, right.changed
    for left_at, right_at in _matches(left_changed.rows, right_changed.rows, left.side):
        before = left_changed.before[left_at] * right_changed.before[right_at]
        weights = left_changed.after[left_at] * right_changed.after[right_at] - before
        yield take_rows(left_changed.rows.batch, left_at), take_rows(right_changed.rows.batch, right_at), weights
    for left_at, right_at in _matches(left_changed.rows, right.unchanged, left.side):
        weights = (left_changed.after - left_changed.before)[left_at] * integers(right.unchanged.batch, COUNT)[right_at]
        yield take_rows(left_changed.rows.batch, left_at), take_rows(right.unchanged.batch, right_at), weights
    for left_at, right_at in _matches(left.unchanged, right_changed.rows, left.side):
        weights = (
            integers(left.unchanged.batch, COUNT)[left_at] * (right_changed.after - right_changed.before)[right_at]
        )
        yield take_rows(left.unchanged.batch, left_at), take_rows(right_changed.rows.batch, right_at), weights


def _matches(left: Run, right: Run, side: Side) -> Iterator[tuple[Positions, Positions]]:
    """The positions of rows that are partners, a limited number of pairs at a time."""
    if side.bounds is not None:
        partners = _Partners(right)
        for left_at, right_at in _expand_pairs(*partners.ranges(left, side)):
            yield left_at, partners.at[right_at]
        return
    low = np.searchsorted(right.order, left.order, side="left")
    high = np.searchsorted(right.order, left.order, side="right")
    left_hashes, right_hashes = hashes(left.batch, SECOND_HASH), hashes(right.batch, SECOND_HASH)
    for left_at, right_at in _expand_pairs(low, high):
        is_same = left_hashes[left_at] == right_hashes[right_at]
        yield left_at[is_same], right_at[is_same]


def _expand_pairs(low: Positions, high: Positions) -> Iterator[tuple[Positions, Positions]]:
    """All pairs of the number of a range and a position in it."""
    counts = high - low
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]) if len(ends) else 0, PIECE_PAIRS):
        number = np.arange(start, min(start + PIECE_PAIRS, int(ends[-1])))
        at = np.searchsorted(ends, number, side="right")
        yield at, low[at] + number - (ends - counts)[at]


class _Partners:
    """The rows of a side as partners within bounds of time. `at` has their positions, sorted by key and time."""

    def __init__(self, run: Run) -> None:
        moments = integers(run.batch, MOMENT)
        self.at = argsort_by_group(run.batch, moments)
        self._index = TimeIndex(run.order[self.at], hashes(run.batch, SECOND_HASH)[self.at], moments[self.at])

    def ranges(self, rows: Run, side: Side) -> tuple[Positions, Positions]:
        """For rows of the other side, the start and the end of their partners in `at`."""
        group = self._index.groups_of(rows)
        first, last = side.reaches(integers(rows.batch, MOMENT))
        return self._index.find(group, first, "left"), self._index.find(group, last, "right")


def _match_changes(
    rows: AffectedSide, others: AffectedSide, watermarks: Watermarks, *, matched: bool
) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
    """The affected rows of one side, and for each by how much the count of its copies without a partner changes.

    With `matched`, of its copies with a partner. Within bounds of time, a row counts as one without a partner only when
    none can come any more.
    """
    changed, unchanged = rows.changed, integers(rows.unchanged.batch, COUNT)
    for part, before, after in (
        (changed.rows, changed.before, changed.after),
        (rows.unchanged, unchanged, unchanged),
    ):
        was_counted = others.has_partner(part, rows.side, after=False) == matched
        is_counted = others.has_partner(part, rows.side, after=True) == matched
        if rows.side.bounds is not None and not matched:
            end = integers(part.batch, MOMENT) + rows.side.wait()
            was_counted &= end < watermarks.before
            is_counted &= end < watermarks.after
        yield part.batch, np.where(is_counted, after, 0) - np.where(was_counted, before, 0)


def repeat_rows(parts: list[pa.RecordBatch], weights: Numbers) -> pa.RecordBatch:
    """The columns of these batches side by side, each row repeated by its weight, with a weight of 1 or -1 each."""
    copies = np.abs(weights)
    columns = [column for part in parts for column in part.columns]
    names = [name for part in parts for name in part.schema.names]
    rows = pa.RecordBatch.from_arrays([*columns, pa.array(np.sign(weights))], names=[*names, WEIGHT])
    if (copies == 1).all():
        return rows
    return take_rows(rows, np.repeat(np.arange(len(copies)), copies))
