"""Windows whose bounds depend on the events, for any aggregate: sliding windows and sessions.

The state holds the rows of groups. Their windows follow from them: each is a range of rows between two times, with one
answer. A step computes the windows before and after the epoch, and sends the rows of those that changed to Spark, which
evaluates them. A window that no longer exists is sent as a row with `_times` 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import MOMENT, Outcome, Watermarks, drop_late, hashes_of
from penstock.engine.operators.group_rows import MULTIPLICITY
from penstock.engine.operators.members import (
    STATE_COLUMNS,
    MemberState,
    argsort_by_group,
    member_groups,
    member_run,
)
from penstock.engine.operators.session import is_late_for_session
from penstock.engine.operators.sorted_groups import rows_in, search_in_groups
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, ID
from penstock.engine.state.rows import (
    Numbers,
    concat_rows,
    filter_rows,
    hashes,
    integers,
    take_rows,
    with_columns,
    without_columns,
)
from penstock.engine.state.run import Run
from penstock.engine.state.search import NOWHERE, Hashes, Mask, expand_ranges, firsts, lasts, positions, unique
from penstock.flow.plan import Session

# About so many rows are emitted at a time: windows overlap, and a row is emitted once for each of its windows.
PIECE_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True)
class RowWindows(MemberState):
    """`length` is the size of a sliding window, or the gap of a session.

    A window is kept for `keep_after` after its end.
    """

    state: str
    shape: Literal["sliding", "session"]
    length: int
    keep_after: int
    final: bool = False

    @property
    def _ends_after(self) -> int:
        """How long after an event a window with this event alone would end."""
        return 0 if self.shape == "sliding" else self.length

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        if self.shape == "sliding":
            return integers(rows, MOMENT) + self.length + self.keep_after
        if not whole:
            return None  # a session expires as a whole, and other rows of it may be in other runs
        return self._session_ends(rows) + Session(self.length).reach + self.keep_after

    def _session_ends(self, rows: pa.RecordBatch) -> Numbers:
        """For each row when its session ends."""
        order = argsort_by_group(rows, integers(rows, MOMENT))
        moment = integers(rows, MOMENT)[order]
        begins = self._session_starts(member_groups(take_rows(rows, order)), moment)
        last_moments = moment[lasts(begins)]
        ends = np.empty(len(order), dtype=np.int64)
        ends[order] = last_moments[np.cumsum(begins) - 1] + self.length
        return ends

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        changes, counts = drop_late(changes, self._is_late(changes, watermarks))
        part = member_run(changes, hashes_of(changes)[0])
        orders = np.concatenate([part.order, self._closing_orders(arrangement.with_run(part), watermarks)])
        rows = _rows_before_and_after(arrangement.rows_of_orders(unique(np.sort(orders))), part)
        windows, vanished_windows, counts["corrected"] = self._changed_windows(rows, watermarks)
        return Outcome(_rows_to_evaluate(rows, windows, vanished_windows), part, counts)

    def _is_late(self, changes: pa.RecordBatch, watermarks: Watermarks) -> Mask:
        moments = integers(changes, MOMENT)
        if self.shape == "session":
            return is_late_for_session(moments, self.length, self.keep_after, watermarks.before)
        return moments + self.keep_after <= watermarks.before

    def _closing_orders(self, arrangement: Arrangement, watermarks: Watermarks) -> Hashes:
        """The orders of groups that may have a window which ends in this epoch."""
        orders = [np.empty(0, dtype=np.uint64)]
        if self.final and watermarks.after > watermarks.before:
            for run in arrangement.runs:
                ends = integers(run.batch, MOMENT) + self._ends_after
                orders.append(run.order[(ends > watermarks.before) & (ends <= watermarks.after)])
        return np.concatenate(orders)

    def _changed_windows(self, rows: _GroupedRows, watermarks: Watermarks) -> tuple[_Windows, _Windows, int]:
        """The windows to evaluate; those that no longer exist; and how many final answers that corrects."""
        old, new = self._windows(rows, rows.before > 0), self._windows(rows, rows.after > 0)
        touched_before = np.concatenate([[0], np.cumsum(rows.before != rows.after)])
        is_wanted = (touched_before[new.stop] > touched_before[new.first]) | ~new.is_in(old)
        if self.final:
            due = new.end <= watermarks.after
            is_wanted = due & (is_wanted | (new.end > watermarks.before))
            old, new, is_wanted = old.filter(old.end <= watermarks.before), new.filter(due), is_wanted[due]
        has_vanished = ~old.is_in(new)
        is_corrected = (has_vanished | old.is_in(new.filter(is_wanted))) & (old.end <= watermarks.before)
        return new.filter(is_wanted), old.filter(has_vanished), int(is_corrected.sum())

    def _windows(self, rows: _GroupedRows, alive: Mask) -> _Windows:
        """The windows of the rows that are present, as ranges of all rows."""
        group, moment = rows.group[alive], rows.moment[alive]
        if self.shape == "sliding":
            begins = firsts(group, moment)
            group, last = group[begins], moment[begins]
            first = search_in_groups(rows.group, rows.moment, group, last - self.length, "right")
            stop = search_in_groups(rows.group, rows.moment, group, last, "right")
            return _Windows(group, last - self.length, last, first, stop)
        begins = self._session_starts(group, moment)
        group, start, last = group[begins], moment[begins], moment[lasts(begins)]
        first = search_in_groups(rows.group, rows.moment, group, start, "left")
        stop = search_in_groups(rows.group, rows.moment, group, last, "right")
        return _Windows(group, start, last + self.length, first, stop)

    def _session_starts(self, group: Numbers, moment: Numbers) -> Mask:
        """Where in rows sorted by group and time a new session begins."""
        begins = firsts(group)
        begins[1:] |= moment[1:] - moment[:-1] >= self.length
        return begins


@dataclass(frozen=True, slots=True)
class _GroupedRows:
    """Rows sorted by group and time, with their counts before the epoch and after it."""

    batch: pa.RecordBatch
    group: Numbers
    moment: Numbers
    before: Numbers
    after: Numbers


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows as ranges of rows: from row `first` up to row `stop`, exclusive."""

    group: Numbers
    start: Numbers
    end: Numbers
    first: Numbers
    stop: Numbers

    def filter(self, keep: Mask | slice) -> _Windows:
        columns = (self.group, self.start, self.end, self.first, self.stop)
        return _Windows(*(column[keep] for column in columns))

    def is_in(self, windows: _Windows) -> Mask:
        """Which of these windows are also among the others, with the same start and end."""
        return rows_in((self.group, self.start, self.end), (windows.group, windows.start, windows.end))

    def pieces(self) -> Iterator[_Windows]:
        """Some windows at a time, so that their rows are not too many."""
        number = np.cumsum(self.stop - self.first) // PIECE_ROWS
        bounds = np.append(np.flatnonzero(firsts(number)), len(number))
        for start, end in pairwise(bounds.tolist()):
            yield self.filter(slice(start, end))


def _rows_before_and_after(before: Run, part: Run) -> _GroupedRows:
    """All rows of these groups, sorted by group and time, with their counts before and after the epoch."""
    at = positions(before.order, before.id, part.order, part.id)
    was_known = at != NOWHERE
    added_counts = integers(part.batch, COUNT)
    rows = concat_rows([before.batch, filter_rows(part.batch, ~was_known)], part.batch.schema)
    count_before = np.zeros(rows.num_rows, dtype=np.int64)
    count_before[: before.rows] = integers(before.batch, COUNT)
    count_after = count_before.copy()
    count_after[at[was_known]] += added_counts[was_known]
    count_after[before.rows :] = added_counts[~was_known]
    order = argsort_by_group(rows, integers(rows, MOMENT), hashes(rows, ID))
    rows = take_rows(rows, order)
    return _GroupedRows(rows, member_groups(rows), integers(rows, MOMENT), count_before[order], count_after[order])


def _rows_to_evaluate(rows: _GroupedRows, windows: _Windows, vanished_windows: _Windows) -> Iterator[pa.RecordBatch]:
    """The rows of the windows to evaluate, and a row for each window that no longer exists."""
    for piece in windows.pieces():
        at = expand_ranges(piece.first, piece.stop)
        is_live = rows.after[at] > 0
        lengths, at = piece.stop - piece.first, at[is_live]
        start, end = np.repeat(piece.start, lengths)[is_live], np.repeat(piece.end, lengths)[is_live]
        yield _window_rows(take_rows(rows.batch, at), start, end, rows.after[at])
    none = np.zeros(len(vanished_windows.group), dtype=np.int64)
    first_rows = take_rows(rows.batch, vanished_windows.first)
    yield _window_rows(first_rows, vanished_windows.start, vanished_windows.end, none)


def _window_rows(rows: pa.RecordBatch, start: Numbers, end: Numbers, multiplicity: Numbers) -> pa.RecordBatch:
    columns = without_columns(rows, *STATE_COLUMNS, MOMENT)
    return with_columns(columns, {START: start, END: end, MULTIPLICITY: multiplicity})
