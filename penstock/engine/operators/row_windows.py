"""Windows that depend on the events themselves, for any aggregate: sliding ones, and sessions.

The rows of a group are kept. From them follow its *frames*: stretches of rows between two times that give one answer
each. A step works out the frames as they were and as they are, and sends the rows of those that changed to Spark,
which evaluates them; a frame that is no longer there goes as one row with `_times` 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import MOMENT, Outcome, Times, hashes_of, on_time
from penstock.engine.operators.group_rows import TIMES
from penstock.engine.operators.members import MEMBERS, OWN, by_group, groups, members, members_schema
from penstock.engine.operators.session import late_sessions
from penstock.engine.operators.sorted_groups import among, find
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import Adding, Arrangement
from penstock.engine.state.columns import COUNT, ID
from penstock.engine.state.rows import Numbers, hashes, integers, picked, stacked, taken, with_columns, without_columns
from penstock.engine.state.run import Run
from penstock.engine.state.search import NOWHERE, Hashes, Mask, distinct, expanded, firsts, positions
from penstock.flow.plan import Session

# The rows of many frames go out in pieces of about so many, since frames overlap and a row goes out once for each.
PIECE_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True)
class RowWindows:
    """`length` is the size of a sliding window or the gap of a session; it is kept for `keep_after` after its end."""

    state: str
    shape: Literal["sliding", "session"]
    length: int
    keep_after: int
    final: bool = False

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return members_schema(changes)

    @property
    def _ends_after(self) -> int:
        """How long after an event the frame ends that it alone would make."""
        return 0 if self.shape == "sliding" else self.length

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        if self.shape == "sliding":
            return integers(rows, MOMENT) + self.length + self.keep_after
        if not whole:
            return None  # a session goes as a whole, and its other rows may lie in other runs
        return self._session_ends(rows) + Session(self.length).reach + self.keep_after

    def _session_ends(self, rows: pa.RecordBatch) -> Numbers:
        """For each row when its session ends."""
        order = by_group(rows, integers(rows, MOMENT))
        moment = integers(rows, MOMENT)[order]
        begins = self._begins(groups(taken(rows, order)), moment)
        lasts = moment[np.append(begins[1:], True)[: len(begins)]]
        ends = np.empty(len(order), dtype=np.int64)
        ends[order] = lasts[np.cumsum(begins) - 1] + self.length
        return ends

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        changes, counts = on_time(changes, self._late(changes, times))
        part = members(changes, hashes_of(changes)[0])
        orders = np.concatenate([part.order, self._closing(arrangement.with_run(part), times)])
        rows = _side_by_side(arrangement.of_orders(distinct(np.sort(orders))), part)
        wanted, vanished, counts["corrected"] = self._changed(rows, times)
        return Outcome(_with_rows(rows, wanted, vanished), part, counts)

    def _late(self, changes: pa.RecordBatch, times: Times) -> Mask:
        moments = integers(changes, MOMENT)
        if self.shape == "session":
            return late_sessions(moments, self.length, self.keep_after, times.before)
        return moments + self.keep_after <= times.before

    def _closing(self, arrangement: Arrangement, times: Times) -> Hashes:
        """The orders of groups that may have a frame which ends in this epoch."""
        found = [np.empty(0, dtype=np.uint64)]
        if self.final and times.after > times.before:
            for run in arrangement.runs:
                ends = integers(run.batch, MOMENT) + self._ends_after
                found.append(run.order[(ends > times.before) & (ends <= times.after)])
        return np.concatenate(found)

    def _changed(self, rows: _Rows, times: Times) -> tuple[_Windows, _Windows, int]:
        """The frames to evaluate, those that are no longer there, and how many were final and are so no more."""
        old, new = self._frames(rows, rows.was > 0), self._frames(rows, rows.is_ > 0)
        touched = np.concatenate([[0], np.cumsum(rows.was != rows.is_)])
        wanted = (touched[new.stop] > touched[new.first]) | ~new.same_as(old)
        if self.final:
            due = new.end <= times.after
            wanted = due & (wanted | (new.end > times.before))
            old, new, wanted = old.where(old.end <= times.before), new.where(due), wanted[due]
        vanished = ~old.same_as(new)
        corrected = (vanished | old.same_as(new.where(wanted))) & (old.end <= times.before)
        return new.where(wanted), old.where(vanished), int(corrected.sum())

    def _frames(self, rows: _Rows, alive: Mask) -> _Windows:
        """The frames of the rows that are there, as stretches of all rows."""
        group, moment = rows.group[alive], rows.moment[alive]
        if self.shape == "sliding":
            begins = firsts(group, moment)
            group, last = group[begins], moment[begins]
            first = find(rows.group, rows.moment, group, last - self.length, "right")
            stop = find(rows.group, rows.moment, group, last, "right")
            return _Windows(group, last - self.length, last, first, stop)
        begins = self._begins(group, moment)
        ends = np.append(begins[1:], True)[: len(begins)]
        group, start, last = group[begins], moment[begins], moment[ends]
        first = find(rows.group, rows.moment, group, start, "left")
        return _Windows(group, start, last + self.length, first, find(rows.group, rows.moment, group, last, "right"))

    def _begins(self, group: Numbers, moment: Numbers) -> Mask:
        """Where in rows sorted by group and time a new session begins."""
        begins = firsts(group)
        begins[1:] |= moment[1:] - moment[:-1] >= self.length
        return begins


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows sorted by group and time: how often each was there, and how often it is."""

    batch: pa.RecordBatch
    group: Numbers
    moment: Numbers
    was: Numbers
    is_: Numbers


@dataclass(frozen=True, slots=True)
class _Windows:
    """Stretches of rows: from row `first` up to row `stop`, exclusive."""

    group: Numbers
    start: Numbers
    end: Numbers
    first: Numbers
    stop: Numbers

    def where(self, wanted: Mask | slice) -> _Windows:
        columns = (self.group, self.start, self.end, self.first, self.stop)
        return _Windows(*(column[wanted] for column in columns))

    def same_as(self, others: _Windows) -> Mask:
        """Which of these frames the others have as well, with the same start and end."""
        return among((self.group, self.start, self.end), (others.group, others.start, others.end))

    def pieces(self) -> Iterator[_Windows]:
        """Some frames at a time, so that their rows are not too many."""
        number = np.cumsum(self.stop - self.first) // PIECE_ROWS
        bounds = np.append(np.flatnonzero(firsts(number)), len(number))
        for start, end in pairwise(bounds.tolist()):
            yield self.where(slice(start, end))


def _side_by_side(before: Run, part: Run) -> _Rows:
    """All rows of these groups, sorted by group and time."""
    at = positions(before.order, before.id, part.order, part.id)
    known = at != NOWHERE
    added = integers(part.batch, COUNT)
    rows = stacked([before.batch, picked(part.batch, ~known)], part.batch.schema)
    was = np.zeros(rows.num_rows, dtype=np.int64)
    was[: before.rows] = integers(before.batch, COUNT)
    is_ = was.copy()
    is_[at[known]] += added[known]
    is_[before.rows :] = added[~known]
    order = by_group(rows, integers(rows, MOMENT), hashes(rows, ID))
    rows = taken(rows, order)
    return _Rows(rows, groups(rows), integers(rows, MOMENT), was[order], is_[order])


def _with_rows(rows: _Rows, wanted: _Windows, vanished: _Windows) -> Iterator[pa.RecordBatch]:
    """The rows of the frames that are to be evaluated, and a row for each that is no longer there."""
    for piece in wanted.pieces():
        at = expanded(piece.first, piece.stop)
        live = rows.is_[at] > 0
        lengths, at = piece.stop - piece.first, at[live]
        start, end = np.repeat(piece.start, lengths)[live], np.repeat(piece.end, lengths)[live]
        yield _evaluated(taken(rows.batch, at), start, end, rows.is_[at])
    none = np.zeros(len(vanished.group), dtype=np.int64)
    yield _evaluated(taken(rows.batch, vanished.first), vanished.start, vanished.end, none)


def _evaluated(rows: pa.RecordBatch, start: Numbers, end: Numbers, times: Numbers) -> pa.RecordBatch:
    return with_columns(without_columns(rows, *OWN, MOMENT), {START: start, END: end, TIMES: times})
