"""Rows of two sides that agree in a key, and are near in time where that is asked for.

Both sides are kept, and a change of one meets the rows of the other.

Nothing is given that is taken back in the same epoch. A pair changes only if one of its rows does, so three kinds of
pairs are looked at, each once: changed with changed, changed with unchanged, unchanged with changed. How often a pair
is there is the product of how often its rows are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import MOMENT, SECOND_HASH, WEIGHT, PairOutcome, Times, hashes_of, on_time
from penstock.engine.operators.members import OWN, by_group, members, missing, of_groups
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, NO_RIGHT_KEY, SIDE, SideRows
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT
from penstock.engine.state.rows import Numbers, hashes, integers, mask, nulls, picked, stacked, taken
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Hashes, Mask, Positions, distinct, firsts, lower_bounds, positions

# Pairs go out in pieces of so many: one key may have millions.
PIECE_PAIRS = 128 * 1024

How = Literal["inner", "left", "right", "full", "semi", "anti"]
_KEEPS_LEFT = ("left", "full", "semi", "anti")
_LONE_LEFT = ("left", "full", "anti")
_KEEPS_RIGHT = ("right", "full")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much later than a left row a right one may be to be its partner: from -`before` to `after`, both included.

    A row without a partner is given when none in time can come any more. One that comes late corrects that until
    `keep` after the last moment that a partner can have.
    """

    before: int
    after: int
    keep: int

    def expiry(self, moments: Numbers) -> Numbers:
        """From which watermark on nothing that is in time can be a partner of rows with these times."""
        return moments + (self.before + self.after + self.keep + 1)


@dataclass(frozen=True, slots=True)
class Side(SideRows):
    """The rows of one side. `prefix` is how their columns begin; `bounds` is None if they are kept for ever."""

    prefix: str
    bounds: Bounds | None = None

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None if self.bounds is None else self.bounds.expiry(integers(rows, MOMENT))

    @property
    def own(self) -> list[str]:
        """The columns of the user."""
        return self.columns.own(self.prefix)

    def wait(self) -> int:
        """How long after a row's own time a partner in time may come."""
        assert self.bounds is not None
        return self.bounds.after if self.prefix == LEFT else self.bounds.before

    def reaches(self, moments: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last moment that a partner of rows with these times may have."""
        assert self.bounds is not None
        back, ahead = (self.bounds.before, self.bounds.after)[:: 1 if self.prefix == LEFT else -1]
        return moments - back, moments + ahead


@dataclass(frozen=True, slots=True)
class Changed:
    """The rows of a side that an epoch changes, with how often they were there before and are there after."""

    rows: Run
    before: Numbers
    after: Numbers


@dataclass(frozen=True, slots=True)
class Seen:
    """What an epoch sees of one side: the rows that it changes, and others that may get or lose a partner."""

    changed: Changed
    others: Run


def seen(arrangement: Arrangement, part: Run, asked: list[Hashes]) -> Seen:
    """What the epoch must know of a side: `part` is what it changes there, `asked` are keys whose rows are needed."""
    known, there = arrangement.look_up(part.order, part.id)
    before = np.zeros(part.rows, dtype=np.int64)
    before[there] = integers(known, COUNT)
    rows = arrangement.of_orders(distinct(np.sort(np.concatenate(asked))))
    others = Run(picked(rows.batch, missing(rows.batch, part.batch)))
    return Seen(Changed(part, before, before + integers(part.batch, COUNT)), others)


@dataclass(frozen=True, slots=True)
class Sight:
    """A side and what an epoch sees of it."""

    side: Side
    seen: Seen

    @property
    def changed(self) -> Changed:
        return self.seen.changed

    @property
    def others(self) -> Run:
        return self.seen.others

    def has(self, rows: Run, of: Side, *, after: bool) -> Mask:
        """Which rows of the other side have a partner here, before the epoch or after it."""
        counts = self.changed.after if after else self.changed.before
        there = [picked(self.changed.rows.batch, counts > 0), self.others.batch]
        names = [*OWN, *([MOMENT] if self.side.bounds else [])]
        partners = sorted_run(stacked([one.select(names) for one in there], self.others.batch.select(names).schema))
        if self.side.bounds is None:
            return of_groups(rows, partners)
        low, high = _Nearby(partners).ranges(rows, of)
        some: Mask = high > low
        return some


@dataclass(frozen=True, slots=True)
class Join:
    """`how` says what is given of rows without a partner."""

    left: Side
    right: Side
    how: How

    def step(self, changes: pa.RecordBatch, left: Arrangement, right: Arrangement, times: Times) -> PairOutcome:
        of_right = mask(changes.column(SIDE))
        ours, our_counts = self._part(changes, ~of_right, self.left, times)
        theirs, their_counts = self._part(changes, of_right, self.right, times)
        left_ends, right_ends = self._ends(self.left, left, times), self._ends(self.right, right, times)
        left_keys, right_keys = [theirs.order, *left_ends], [ours.order, *right_ends]
        if self.how in _KEEPS_LEFT:  # it matters whether any partner is left
            right_keys += [theirs.order, *left_ends]
        if self.how in _KEEPS_RIGHT:
            left_keys += [ours.order, *right_ends]
        one = Sight(self.left, seen(left, ours, left_keys))
        other = Sight(self.right, seen(right, theirs, right_keys))
        output = self._output(one, other, changes.schema, times)
        return PairOutcome(output, self._kept(ours), self._kept(theirs), our_counts, their_counts)

    def _ends(self, side: Side, arrangement: Arrangement, times: Times) -> list[Hashes]:
        """The keys of rows for which the time of partners ends now: they are given if they have none."""
        if side.bounds is None or self.how not in (_LONE_LEFT if side.prefix == LEFT else _KEEPS_RIGHT):
            return []
        ends = [(run.order, integers(run.batch, MOMENT) + side.wait()) for run in arrangement.runs]
        return [order[(end >= times.before) & (end < times.after)] for order, end in ends]

    def _kept(self, part: Run) -> Run:
        """The rows without those that will never have a partner, and need not wait until that is certain."""
        if self.left.bounds is not None:
            return part
        keyless = np.isin(integers(part.batch, SECOND_HASH), (NO_LEFT_KEY, NO_RIGHT_KEY))
        return Run(picked(part.batch, ~keyless))

    def _part(self, changes: pa.RecordBatch, chosen: Mask, side: Side, times: Times) -> tuple[Run, dict[str, int]]:
        rows = side.columns.rows(changes, chosen)
        late = np.zeros(rows.num_rows, dtype=np.bool_)
        if side.bounds is not None:
            late = integers(rows, MOMENT) + (side.wait() + side.bounds.keep) < times.before
        rows, counts = on_time(rows, late)
        return members(rows, hashes_of(rows)[0]), counts

    def _output(self, left: Sight, right: Sight, schema: pa.Schema, times: Times) -> Iterator[pa.RecordBatch]:
        ours, theirs = self.left.own, self.right.own
        if self.how in ("semi", "anti"):
            for rows, weights in _lone(left, right, times, wanted=self.how == "semi"):
                yield repeated([rows.select(ours)], weights)
            return
        for one, other, weights in _pairs(left, right):
            yield repeated([one.select(ours), other.select(theirs)], weights)
        if self.how in _KEEPS_LEFT:
            nothing = pa.schema([self.right.schema(schema).field(name) for name in theirs])
            for rows, weights in _lone(left, right, times, wanted=False):
                yield repeated([rows.select(ours), nulls(nothing, rows.num_rows)], weights)
        if self.how in _KEEPS_RIGHT:
            nothing = pa.schema([self.left.schema(schema).field(name) for name in ours])
            for rows, weights in _lone(right, left, times, wanted=False):
                yield repeated([nulls(nothing, rows.num_rows), rows.select(theirs)], weights)


def _pairs(left: Sight, right: Sight) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, Numbers]]:
    """Pairs that the epoch changes: the rows of both sides, and how much more often the pair is there than before."""
    one, other = left.changed, right.changed
    for at, there in _matches(one.rows, other.rows, left.side):
        weights = one.after[at] * other.after[there] - one.before[at] * other.before[there]
        yield taken(one.rows.batch, at), taken(other.rows.batch, there), weights
    for at, there in _matches(one.rows, right.others, left.side):
        weights = (one.after - one.before)[at] * integers(right.others.batch, COUNT)[there]
        yield taken(one.rows.batch, at), taken(right.others.batch, there), weights
    for at, there in _matches(left.others, other.rows, left.side):
        weights = integers(left.others.batch, COUNT)[at] * (other.after - other.before)[there]
        yield taken(left.others.batch, at), taken(other.rows.batch, there), weights


def _matches(left: Run, right: Run, side: Side) -> Iterator[tuple[Positions, Positions]]:
    """The positions of rows that are partners, a limited number of pairs at a time."""
    if side.bounds is not None:
        nearby = _Nearby(right)
        for at, there in _expanded(*nearby.ranges(left, side)):
            yield at, nearby.at[there]
        return
    low = np.searchsorted(right.order, left.order, side="left")
    high = np.searchsorted(right.order, left.order, side="right")
    ours, theirs = hashes(left.batch, SECOND_HASH), hashes(right.batch, SECOND_HASH)
    for at, there in _expanded(low, high):
        same = ours[at] == theirs[there]
        yield at[same], there[same]


def _expanded(low: Positions, high: Positions) -> Iterator[tuple[Positions, Positions]]:
    """All pairs of a range's number and a position in it."""
    counts = high - low
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]) if len(ends) else 0, PIECE_PAIRS):
        number = np.arange(start, min(start + PIECE_PAIRS, int(ends[-1])))
        at = np.searchsorted(ends, number, side="right")
        yield at, low[at] + number - (ends - counts)[at]


class _Nearby:
    """The rows of a side, to be found by their key and time. `at` has their positions in that order."""

    def __init__(self, run: Run) -> None:
        moments = integers(run.batch, MOMENT)
        self.at = by_group(run.batch, moments)
        order, second = run.order[self.at], hashes(run.batch, SECOND_HASH)[self.at]
        begins = firsts(order, second)
        self._order, self._second = order[begins], second[begins]
        self._group, self._moments = np.cumsum(begins) - 1, moments[self.at]

    def ranges(self, rows: Run, of: Side) -> tuple[Positions, Positions]:
        """For rows of the other side where their partners begin and end."""
        group = positions(self._order, self._second, rows.order, hashes(rows.batch, SECOND_HASH))
        first, last = of.reaches(integers(rows.batch, MOMENT))
        low, high = (lower_bounds(self._group, self._moments, group, moment) for moment in (first, last + 1))
        return low, high


def _lone(rows: Sight, others: Sight, times: Times, *, wanted: bool) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
    """Rows of one side, and how much more often they are without a partner than before; with one, if `wanted`.

    Where partners are near in time, a row is without one only when none can come any more.
    """
    changed, unchanged = rows.changed, integers(rows.others.batch, COUNT)
    for some, before, after in (
        (changed.rows, changed.before, changed.after),
        (rows.others, unchanged, unchanged),
    ):
        was, is_ = (others.has(some, rows.side, after=which) == wanted for which in (False, True))
        if rows.side.bounds is not None and not wanted:
            end = integers(some.batch, MOMENT) + rows.side.wait()
            was, is_ = was & (end < times.before), is_ & (end < times.after)
        yield some.batch, np.where(is_, after, 0) - np.where(was, before, 0)


def repeated(parts: list[pa.RecordBatch], weights: Numbers) -> pa.RecordBatch:
    """The columns of some batches side by side, each row as often as its weight says, with 1 or -1."""
    times = np.abs(weights)
    columns = [column for part in parts for column in part.columns]
    names = [name for part in parts for name in part.schema.names]
    rows = pa.RecordBatch.from_arrays([*columns, pa.array(np.sign(weights))], names=[*names, WEIGHT])
    if (times == 1).all():
        return rows
    return taken(rows, np.repeat(np.arange(len(times)), times))
