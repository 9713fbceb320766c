"""Sessions whose aggregates add up.

Spark sums up the events of a group in pieces of time as long as the gap, so that a piece is never in two sessions. A
step sorts these pieces and the sessions of their groups by time, joins what is closer than the gap, and replaces the
sessions that this changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import (
    EVENTS,
    HASH,
    REVISION,
    SECOND_HASH,
    Outcome,
    Watermarks,
    as_changes,
    drop_late,
    hashes_of,
    run_schema,
    with_run_key,
)
from penstock.engine.operators.members import argsort_by_group, member_groups, missing_from
from penstock.engine.operators.sorted_groups import running_maximum
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import Adding, Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.combine import Rule, fold_groups
from penstock.engine.state.rows import Numbers, concat_rows, filter_rows, hashes, integers, take_rows, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Hashes, Mask, firsts, lasts, unique
from penstock.flow.plan import Session

LAST = "_last"  # when a session's (or a piece's) last event was; `_start` is when its first was


def is_late_for_session(moments: Numbers, gap: int, keep: int, watermark: int) -> Mask:
    """Which events are too late for a session.

    All events of a piece of time are late or none is, so that the accounts do not depend on which of them come in the
    same epoch.
    """
    return moments - moments % gap + Session(gap).reach + keep <= watermark


@dataclass(frozen=True, slots=True)
class Sessions:
    """`gap` and `keep_after` are in microseconds. With `final`, a session is emitted once it has ended."""

    state: str
    rules: dict[str, Rule]
    gap: int
    keep_after: int
    final: bool = False
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return run_schema(changes, {REVISION: pa.int64(), GONE: pa.bool_()}, (HASH, EVENTS))

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return self._ends(rows) + Session(self.gap).reach + self.keep_after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        late = is_late_for_session(integers(changes, LAST), self.gap, self.keep_after, watermarks.before)
        changes, counts = drop_late(changes, late)
        pieces = self._pieces(changes)
        known_sessions = arrangement.rows_of_orders(unique(pieces.order)).batch
        old, new = self._join_pieces(known_sessions, pieces.batch, watermarks)
        counts["corrected"] = int((self._ends(old) <= watermarks.before).sum())
        run = sorted_run(_replacement_rows(old, new))
        if not self.final:
            return Outcome([self._as_answers(old, -1), self._as_answers(new, 1)], run, counts)
        output = [
            self._as_answers(filter_rows(old, self._ends(old) <= watermarks.before), -1),
            self._as_answers(filter_rows(new, self._ends(new) <= watermarks.before), 1),
            self._as_answers(self._closing_sessions(arrangement.with_run(run), watermarks), 1),
        ]
        return Outcome(output, run, counts)

    def _pieces(self, changes: pa.RecordBatch) -> Run:
        none = np.zeros(changes.num_rows, dtype=np.int64)
        rows = with_columns(changes, {REVISION: none, GONE: none.astype(np.bool_)})
        first, second = hashes_of(changes)
        rows = with_run_key(rows, first, session_id(second, integers(changes, START)))
        return sorted_run(rows.select(self.schema(changes.schema).names))

    def _join_pieces(
        self, known_sessions: pa.RecordBatch, pieces: pa.RecordBatch, watermarks: Watermarks
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The sessions that change, as they were; and those that replace them."""
        rows = concat_rows([known_sessions, pieces], pieces.schema)
        # Pieces come in any order. Once sorted, sums of doubles are the same in every attempt.
        order = argsort_by_group(rows, integers(rows, START))
        begins = self._session_starts(take_rows(rows.select([ORDER, SECOND_HASH, START, LAST]), order))
        is_old, is_alone = order < known_sessions.num_rows, begins & lasts(begins)
        is_changed = ~(is_old & is_alone)
        changed_rows = self._with_revisions(take_rows(rows, order[is_changed]), is_old[is_changed], watermarks)
        session = np.cumsum(begins) - 1
        return take_rows(rows, order[is_old & is_changed]), self._sum_sessions(
            changed_rows, firsts(session[is_changed])
        )

    def _session_starts(self, rows: pa.RecordBatch) -> Mask:
        """Where in rows sorted by group and start a new session begins."""
        group = member_groups(rows)
        start, ends = integers(rows, START), running_maximum(group, integers(rows, LAST)) + self.gap
        begins = firsts(group)
        begins[1:] |= start[1:] >= ends[:-1]
        return begins

    def _with_revisions(self, rows: pa.RecordBatch, is_old: Mask, watermarks: Watermarks) -> pa.RecordBatch:
        """Count a revision for each session that was final."""
        was_final = is_old & (self._ends(rows) <= watermarks.before)
        return with_columns(rows, {REVISION: integers(rows, REVISION) + was_final})

    def _sum_sessions(self, rows: pa.RecordBatch, begins: Mask) -> pa.RecordBatch:
        """One row for each session."""
        bounds: dict[str, Rule] = {START: "min", LAST: "max", COUNT: "sum", REVISION: "max"}
        sessions = fold_groups(rows, begins, Adding({**self.rules, **bounds}, self.titles).combine_rows)
        id_ = session_id(hashes(sessions, SECOND_HASH), integers(sessions, START))
        return with_columns(sessions, {ID: id_.view(np.int64)})

    def _closing_sessions(self, arrangement: Arrangement, watermarks: Watermarks) -> pa.RecordBatch:
        """The sessions that the watermark passes in this epoch. Scans every run, but only one column of it."""
        keys_by_run = [
            filter_rows(run.batch, self._is_closing(run.batch, watermarks)).select([ORDER, ID])
            for run in arrangement.runs
        ]
        keys = sorted_run(concat_rows(keys_by_run, pa.schema([(ORDER, pa.int64()), (ID, pa.int64())])))
        keys = Run(filter_rows(keys.batch, firsts(keys.order, keys.id)))
        # A run may hold an older state of the session; the newest counts.
        sessions, _ = arrangement.look_up(keys.order, keys.id)
        return filter_rows(sessions, self._is_closing(sessions, watermarks))

    def _is_closing(self, rows: pa.RecordBatch, watermarks: Watermarks) -> Mask:
        ends = self._ends(rows)
        return (ends > watermarks.before) & (ends <= watermarks.after)

    def _ends(self, rows: pa.RecordBatch) -> Numbers:
        return integers(rows, LAST) + self.gap

    def _as_answers(self, rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
        return as_changes(with_columns(rows, {END: self._ends(rows)}), weight)


def _replacement_rows(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
    """The new sessions, and deletions of those old ones whose start no new session has."""
    marks = filter_rows(old, missing_from(old, new))
    return concat_rows([new, with_columns(marks, {GONE: np.ones(marks.num_rows, dtype=np.bool_)})], new.schema)


def session_id(second: Hashes, start: Numbers) -> Hashes:
    """The id of a session: distinguishes the sessions of a group by their starts."""
    bits: Hashes = second ^ (start.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    return bits
