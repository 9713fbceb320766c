"""Windows that depend on the events themselves, for any aggregate: sliding ones, and sessions.

The rows of a group are kept. From them follow its *frames*: stretches of rows between two times that give one answer each.
A step works out the frames as they were and as they are, and sends the rows of those that changed to Spark, which
evaluates them; a frame that is no longer there goes as one row with `_times` 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.accumulate import EVENTS
from penstock.engine.operators.contract import (
    HASH,
    SECOND_HASH,
    Outcome,
    Times,
    hashes_of,
    integers,
    with_columns,
    without_columns,
)
from penstock.engine.operators.newest import MOMENT
from penstock.engine.operators.regroup import ROW_HASH, TIMES
from penstock.engine.operators.segments import find, segments
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.arrangement import Adding, Arrangement, Keep, Mask
from penstock.engine.state.run import ID, ORDER, Hashes, Run, hashes, sorted_run
from penstock.engine.state.search import NOWHERE, expanded, firsts, positions

# The rows of many frames go out in pieces of about so many, since frames overlap and a row goes out once for each.
PIECE_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True)
class Frames:
    """`length` is the size of a sliding window or the gap of a session, `keep_after` how long after its end it is kept."""

    state: str
    shape: Literal["sliding", "session"]
    length: int
    keep_after: int
    final: bool = False

    @property
    def kind(self) -> Adding:
        return Adding({COUNT: "sum"})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        left_out = {EVENTS, ROW_HASH, HASH}
        fields = [pa.field(one.name, one.type) for one in changes if one.name not in left_out]
        return pa.schema([*fields, pa.field(ORDER, pa.int64()), pa.field(ID, pa.int64())])

    @property
    def _ends_after(self) -> int:
        """How long after an event the frame ends that it alone would make."""
        return 0 if self.shape == "sliding" else self.length

    def keep(self, times: Times) -> Keep | None:
        reach = self.length + self.keep_after
        return lambda rows: integers(rows, MOMENT) + reach > times.after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        counts = {"events": int(integers(changes, EVENTS).sum())}
        late = integers(changes, MOMENT) + self._ends_after + self.keep_after <= times.before
        if late.any():
            counts["late"] = int(integers(changes, EVENTS)[late].sum())
            counts["late_groups"] = int(late.sum())
            changes = changes.filter(pa.array(~late))
        part = sorted_run(self._rows(changes))
        grown = arrangement.with_run(part)
        orders = np.unique(np.concatenate([part.order, self._closing(grown, times)]))
        before = arrangement.of_orders(orders)
        rows = self._side_by_side(before, part)
        return Outcome(self._changed(rows, times), part, counts)  # type: ignore[arg-type]

    def _rows(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        first, _ = hashes_of(changes)
        rows = with_columns(changes, {ORDER: first.view(np.int64), ID: changes.column(ROW_HASH)})
        return rows.select(self.schema(changes.schema).names)

    def _closing(self, arrangement: Arrangement, times: Times) -> Hashes:
        """The orders of groups that may have a frame which ends in this epoch."""
        if not self.final or times.after <= times.before:
            return np.empty(0, dtype=np.uint64)
        found = [np.empty(0, dtype=np.uint64)]
        for run in arrangement.runs:
            ends = integers(run.batch, MOMENT) + self._ends_after
            found.append(run.order[(ends > times.before) & (ends <= times.after)])
        return np.concatenate(found)

    def _side_by_side(self, before: Run, part: Run) -> _Rows:
        """All rows of these groups, sorted by group and time: how often each was there, and how often it is."""
        at = positions(before.order, before.id, part.order, part.id)
        known = at != NOWHERE
        all_ = pa.concat_batches([before.batch, part.batch.filter(pa.array(~known))])
        was = np.concatenate([integers(before.batch, COUNT), np.zeros(int((~known).sum()), dtype=np.int64)])
        is_ = was.copy()
        is_[at[known]] += integers(part.batch, COUNT)[known]
        is_[before.rows :] = integers(part.batch, COUNT)[~known]
        order = np.lexsort((hashes(all_, ID), integers(all_, MOMENT), integers(all_, SECOND_HASH), integers(all_, ORDER)))
        sorted_ = all_.take(pa.array(order))
        group = segments(integers(sorted_, ORDER), integers(sorted_, SECOND_HASH))
        return _Rows(sorted_, group, integers(sorted_, MOMENT), was[order], is_[order])

    def _changed(self, rows: _Rows, times: Times) -> Iterator[pa.RecordBatch]:
        old, new = self._frames(rows, rows.was > 0), self._frames(rows, rows.is_ > 0)
        touched = np.concatenate([[0], np.cumsum(rows.was != rows.is_)])
        changed = touched[new.stop] > touched[new.first]
        if self.final:
            due = new.end <= times.after
            wanted = due & (changed | (new.end > times.before) | ~new.same_as(old))
            old = old.where(old.end <= times.before)
            vanished = ~old.same_as(new.where(due))
        else:
            wanted = changed | ~new.same_as(old)
            vanished = ~old.same_as(new)
        yield from _with_rows(rows, new.where(wanted))
        yield _markers(rows, old.where(vanished))

    def _frames(self, rows: _Rows, alive: Mask) -> _Frames:
        """The frames of the rows that are there, as stretches of all rows."""
        at = np.flatnonzero(alive)
        group, moment = rows.group[at], rows.moment[at]
        if self.shape == "sliding":
            begins = firsts(group, moment)
            group, end = group[begins], moment[begins]
            start = end - self.length
            first = find(rows.group, rows.moment, group, start, "right")
        else:
            begins = np.ones(len(at), dtype=np.bool_)
            begins[1:] = (group[1:] != group[:-1]) | (moment[1:] - moment[:-1] >= self.length)
            ends = np.append(begins[1:], True)[: len(at)]
            group, start, end = group[begins], moment[begins], moment[ends] + self.length
            first = find(rows.group, rows.moment, group, start, "left")
        last = end if self.shape == "sliding" else end - self.length
        return _Frames(group, start, end, first, find(rows.group, rows.moment, group, last, "right"))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows sorted by group and time."""

    batch: pa.RecordBatch
    group: np.ndarray
    moment: np.ndarray
    was: np.ndarray
    is_: np.ndarray


@dataclass(frozen=True, slots=True)
class _Frames:
    """Stretches of rows: from row `first` up to row `stop`, exclusive."""

    group: np.ndarray
    start: np.ndarray
    end: np.ndarray
    first: np.ndarray
    stop: np.ndarray

    def where(self, wanted: Mask) -> _Frames:
        columns = (self.group, self.start, self.end, self.first, self.stop)
        return _Frames(*(column[wanted] for column in columns))

    def same_as(self, others: _Frames) -> Mask:
        """Which of these frames the others have as well, with the same start and end."""
        return np.isin(self._keys(), others._keys())

    def _keys(self) -> np.ndarray:
        keys = np.empty(len(self.group), dtype=[("group", np.int64), ("start", np.int64), ("end", np.int64)])
        keys["group"], keys["start"], keys["end"] = self.group, self.start, self.end
        return keys

    def pieces(self) -> Iterator[_Frames]:
        """Some frames at a time, so that their rows are not too many."""
        total = np.cumsum(self.stop - self.first)
        number = total // PIECE_ROWS
        for one in np.unique(number):
            yield self.where(number == one)


def _with_rows(rows: _Rows, frames: _Frames) -> Iterator[pa.RecordBatch]:
    for piece in frames.pieces():
        lengths = piece.stop - piece.first
        at = expanded(piece.first, piece.stop)
        live = rows.is_[at] > 0
        start, end = np.repeat(piece.start, lengths)[live], np.repeat(piece.end, lengths)[live]
        yield _evaluated(rows.batch.take(pa.array(at[live])), start, end, rows.is_[at][live])


def _markers(rows: _Rows, frames: _Frames) -> pa.RecordBatch:
    return _evaluated(
        rows.batch.take(pa.array(frames.first)), frames.start, frames.end, np.zeros(len(frames.group), dtype=np.int64)
    )


def _evaluated(rows: pa.RecordBatch, start: np.ndarray, end: np.ndarray, times: np.ndarray) -> pa.RecordBatch:
    bare = without_columns(rows, ORDER, ID, COUNT, SECOND_HASH, MOMENT)
    return with_columns(bare, {START: start, END: end, TIMES: times})
