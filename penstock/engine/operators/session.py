"""Sessions whose aggregates add up.

Spark sums up the events of a group in pieces of time as long as the gap, so that a piece never belongs to two sessions.
A step puts pieces and the sessions that their groups have side by side, joins what lies closer than the gap, and
replaces the sessions that this changed.
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
    Times,
    hashes_of,
    keyed,
    on_time,
    run_schema,
    weighted,
)
from penstock.engine.operators.members import by_group, groups, missing
from penstock.engine.operators.sorted_groups import running_maximum
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import Adding, Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.combine import Rule, folded
from penstock.engine.state.rows import Numbers, hashes, integers, picked, stacked, taken, with_columns
from penstock.engine.state.run import Run, sorted_run
from penstock.engine.state.search import Hashes, Mask, distinct, firsts
from penstock.flow.plan import Session

LAST = "_last"  # when a session's (or a piece's) last event was; `_start` is when its first was


def late_sessions(moments: Numbers, gap: int, keep: int, watermark: int) -> Mask:
    """Which events came too late to be in a session.

    An event is late together with all others of its piece of time, so that the books do not depend on which of them
    came in one epoch.
    """
    return (moments // gap + 1) * gap + gap + keep <= watermark


@dataclass(frozen=True, slots=True)
class Sessions:
    """`gap` and `keep_after` in microseconds; `final`: sessions are answers once they have ended."""

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

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return self._ends(rows) + Session(self.gap).reach + self.keep_after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        late = late_sessions(integers(changes, LAST), self.gap, self.keep_after, times.before)
        changes, counts = on_time(changes, late)
        pieces = self._pieces(changes)
        known = arrangement.of_orders(distinct(pieces.order)).batch
        old, new = self._joined(known, pieces.batch, times)
        counts["corrected"] = int((self._ends(old) <= times.before).sum())
        run = sorted_run(_replacing(old, new))
        if not self.final:
            return Outcome([self._answers(old, -1), self._answers(new, 1)], run, counts)
        output = [
            self._answers(picked(old, self._ends(old) <= times.before), -1),
            self._answers(picked(new, self._ends(new) <= times.before), 1),
            self._answers(self._closing(arrangement.with_run(run), times), 1),
        ]
        return Outcome(output, run, counts)

    def _pieces(self, changes: pa.RecordBatch) -> Run:
        none = np.zeros(changes.num_rows, dtype=np.int64)
        rows = with_columns(changes, {REVISION: none, GONE: none.astype(np.bool_)})
        first, second = hashes_of(changes)
        rows = keyed(rows, first, session_id(second, integers(changes, START)))
        return sorted_run(rows.select(self.schema(changes.schema).names))

    def _joined(
        self, known: pa.RecordBatch, pieces: pa.RecordBatch, times: Times
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The sessions that change, as they were; and what takes their place."""
        both = stacked([known, pieces], pieces.schema)
        # Pieces come in any order, but here they are sorted: sums of doubles come out the same in every attempt.
        order = by_group(both, integers(both, START))
        begins = self._begins(taken(both.select([ORDER, SECOND_HASH, START, LAST]), order))
        is_old, alone = order < known.num_rows, begins & np.append(begins[1:], True)[: len(begins)]
        changed = ~(is_old & alone)
        rows = self._with_revisions(taken(both, order[changed]), is_old[changed], times)
        session = np.cumsum(begins) - 1
        return taken(both, order[is_old & changed]), self._summed(rows, firsts(session[changed]))

    def _begins(self, rows: pa.RecordBatch) -> Mask:
        """Where in rows sorted by group and start a new session begins."""
        group = groups(rows)
        start, until = integers(rows, START), running_maximum(group, integers(rows, LAST)) + self.gap
        begins = firsts(group)
        begins[1:] |= start[1:] >= until[:-1]
        return begins

    def _with_revisions(self, rows: pa.RecordBatch, is_old: Mask, times: Times) -> pa.RecordBatch:
        """What is joined with a session that was final corrects it."""
        was_final = is_old & (self._ends(rows) <= times.before)
        return with_columns(rows, {REVISION: integers(rows, REVISION) + was_final})

    def _summed(self, rows: pa.RecordBatch, begins: Mask) -> pa.RecordBatch:
        """One row for each session."""
        bounds: dict[str, Rule] = {START: "min", LAST: "max", COUNT: "sum", REVISION: "max"}
        summed = folded(rows, begins, Adding({**self.rules, **bounds}, self.titles).together)
        id_ = session_id(hashes(summed, SECOND_HASH), integers(summed, START))
        return with_columns(summed, {ID: id_.view(np.int64)})

    def _closing(self, arrangement: Arrangement, times: Times) -> pa.RecordBatch:
        """Sessions that the watermark has passed in this epoch: every run is looked through, for one column."""
        found = [picked(run.batch, self._closes(run.batch, times)).select([ORDER, ID]) for run in arrangement.runs]
        keys = sorted_run(stacked(found, pa.schema([(ORDER, pa.int64()), (ID, pa.int64())])))
        keys = Run(picked(keys.batch, firsts(keys.order, keys.id)))
        # What was found may be an older state of its session; what counts is the newest.
        current, _ = arrangement.look_up(keys.order, keys.id)
        return picked(current, self._closes(current, times))

    def _closes(self, rows: pa.RecordBatch, times: Times) -> Mask:
        ends = self._ends(rows)
        return (ends > times.before) & (ends <= times.after)

    def _ends(self, rows: pa.RecordBatch) -> Numbers:
        return integers(rows, LAST) + self.gap

    def _answers(self, rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
        return weighted(with_columns(rows, {END: self._ends(rows)}), weight)


def _replacing(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
    """The new sessions, and marks that take away those of the old ones that have no successor with their start."""
    marks = picked(old, missing(old, new))
    return stacked([new, with_columns(marks, {GONE: np.ones(marks.num_rows, dtype=np.bool_)})], new.schema)


def session_id(second: Hashes, start: Numbers) -> Hashes:
    """Tells the sessions of a group apart by their starts."""
    mixed: Hashes = second ^ (start.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    return mixed
