"""Sessions whose aggregates add up.

Spark sums up the events of a group in pieces shorter than the gap, so that a piece never belongs to two sessions. A step
puts pieces and the sessions that their groups have side by side, joins what lies closer than the gap, and replaces the
sessions that this changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.accumulate import EVENTS, REVISION
from penstock.engine.operators.contract import (
    HASH,
    SECOND_HASH,
    Outcome,
    Times,
    hashes_of,
    integers,
    weighted,
    with_columns,
)
from penstock.engine.operators.segments import running_maximum, segments
from penstock.engine.operators.windows import END, START
from penstock.engine.state.arrangement import GONE, Arrangement, Keep, Mask, Replacing, Rule
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.run import ID, ORDER, Hashes, Run, sorted_run

LAST = "_last"  # when a session's (or a piece's) last event was; `_start` is when its first was


@dataclass(frozen=True, slots=True)
class Sessions:
    """`gap` and `keep` in microseconds; `final`: sessions are answers once they have ended."""

    state: str
    rules: dict[str, Rule]
    gap: int
    keep_after: int
    final: bool = False

    @property
    def kind(self) -> Replacing:
        return Replacing()

    def schema(self, changes: pa.Schema) -> pa.Schema:
        left_out = {EVENTS, HASH}
        fields = [pa.field(field.name, field.type) for field in changes if field.name not in left_out]
        added = [(REVISION, pa.int64()), (GONE, pa.bool_()), (ORDER, pa.int64()), (ID, pa.int64())]
        return pa.schema([*fields, *(pa.field(name, type_) for name, type_ in added)])

    def keep(self, times: Times) -> Keep | None:
        return lambda rows: integers(rows, LAST) + self.gap + self.keep_after > times.after

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        counts = {"events": int(integers(changes, EVENTS).sum())}
        late = integers(changes, LAST) + self.gap + self.keep_after <= times.before
        if late.any():
            counts["late"] = int(integers(changes, EVENTS)[late].sum())
            counts["late_groups"] = int(late.sum())
            changes = changes.filter(pa.array(~late))
        pieces = self._rows(changes)
        kept = arrangement.of_orders(np.unique(pieces.order)).batch
        old, new = self._joined(kept, pieces.batch)
        run = sorted_run(_replacing(old, new))
        output = [weighted(old.filter(pa.array(self._known(old, times))), -1)]
        if not self.final:
            output.append(weighted(new, 1))
        else:
            output.append(weighted(new.filter(pa.array(self._ends(new) <= times.before)), 1))
            output.append(weighted(self._closing(arrangement.with_run(run), times), 1))
        return Outcome([self._with_end(batch) for batch in output], run, counts)

    def _rows(self, changes: pa.RecordBatch) -> Run:
        first, second = hashes_of(changes)
        rows = with_columns(
            changes,
            {
                ORDER: first.view(np.int64),
                ID: session_id(second, integers(changes, START)).view(np.int64),
                REVISION: np.full(len(first), -1, dtype=np.int64),  # a piece: not yet an answer
                GONE: np.zeros(len(first), dtype=np.bool_),
            },
        )
        return sorted_run(rows.select(self.schema(changes.schema).names))

    def _joined(self, kept: pa.RecordBatch, pieces: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The sessions that change, as they were; and what takes their place."""
        both = pa.concat_batches([kept, pieces])
        is_old = np.arange(both.num_rows) < kept.num_rows
        order = np.lexsort((integers(both, START), integers(both, SECOND_HASH), integers(both, ORDER)))
        both, is_old = both.take(pa.array(order)), is_old[order]
        session = self._sessions(both)
        sizes = np.bincount(session) if len(session) else np.zeros(0, dtype=np.int64)
        changed = ~(is_old & (sizes[session] == 1)) if len(session) else is_old
        old = both.filter(pa.array(is_old & changed))
        return old, self._summed(both.filter(pa.array(changed)), session[changed])

    def _sessions(self, rows: pa.RecordBatch) -> np.ndarray:
        """The number of the session that each row (sorted by group and start) is in."""
        group = segments(integers(rows, ORDER), integers(rows, SECOND_HASH))
        start, reach = integers(rows, START), running_maximum(group, integers(rows, LAST)) + self.gap
        begins = np.ones(len(group), dtype=np.bool_)
        begins[1:] = (group[1:] != group[:-1]) | (start[1:] >= reach[:-1])
        return np.cumsum(begins) - 1

    def _summed(self, rows: pa.RecordBatch, session: np.ndarray) -> pa.RecordBatch:
        """One row for each session; an answer that is replaced makes this one the next revision."""
        rules = {**self.rules, COUNT: "sum", START: "min", LAST: "max", REVISION: "max"}
        numbered = pa.Table.from_batches([with_columns(rows, {"_session": session})])
        groups = numbered.group_by("_session", use_threads=False)
        kept = [name for name in rows.schema.names if name not in rules]
        table = groups.aggregate(
            [*((name, rule) for name, rule in rules.items()), *((name, "first") for name in kept)]
        )
        columns = {}
        for field in rows.schema:
            name = field.name
            columns[name] = table.column(f"{name}_{rules.get(name, 'first')}").combine_chunks().cast(field.type)
        summed = pa.RecordBatch.from_pydict(columns, schema=rows.schema)
        second = summed.column(SECOND_HASH).to_numpy(zero_copy_only=False).view(np.uint64)
        return with_columns(
            summed,
            {
                ID: session_id(second, integers(summed, START)).view(np.int64),
                REVISION: integers(summed, REVISION) + 1,
            },
        )

    def _known(self, sessions: pa.RecordBatch, times: Times) -> Mask:
        """Which sessions were answers before this epoch."""
        if self.final:
            return np.asarray(self._ends(sessions) <= times.before, dtype=np.bool_)
        return np.ones(sessions.num_rows, dtype=np.bool_)

    def _ends(self, rows: pa.RecordBatch) -> np.ndarray:
        return integers(rows, LAST) + self.gap

    def _closing(self, arrangement: Arrangement, times: Times) -> pa.RecordBatch:
        """Sessions that the watermark has passed in this epoch: every run is looked through, for one column."""
        found = []
        for run in arrangement.runs:
            ends = self._ends(run.batch)
            found.append(run.batch.filter(pa.array((ends > times.before) & (ends <= times.after))))
        rows = pa.concat_batches(found) if found else arrangement.schema.empty_table().to_batches()[0]
        if not rows.num_rows:
            return rows
        rows = rows.take(pa.array(_one_of_each(rows)))
        # What was found may be an older state of its session; what counts is the newest.
        current, there = arrangement.look_up(_numbers(rows, ORDER), _numbers(rows, ID))
        now = there & np.asarray(
            (self._filled(current) > times.before) & (self._filled(current) <= times.after), dtype=np.bool_
        )
        return current.filter(pa.array(now))

    def _filled(self, rows: pa.RecordBatch) -> np.ndarray:
        return rows.column(LAST).fill_null(0).to_numpy(zero_copy_only=False) + self.gap

    def _with_end(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return with_columns(rows, {END: self._ends(rows)})


def _replacing(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
    """The new sessions, and marks that take away those of the old ones that have no successor with their start."""
    gone = ~np.isin(_numbers(old, ID), _numbers(new, ID))
    marks = with_columns(old, {GONE: np.ones(old.num_rows, dtype=np.bool_)}).filter(pa.array(gone))
    return pa.concat_batches([new, marks.cast(new.schema)])


def _one_of_each(rows: pa.RecordBatch) -> np.ndarray:
    keys = np.stack([integers(rows, ORDER), integers(rows, ID)])
    return np.unique(keys, axis=1, return_index=True)[1]


def _numbers(rows: pa.RecordBatch, name: str) -> Hashes:
    return rows.column(name).to_numpy(zero_copy_only=False).view(np.uint64)


def session_id(second: Hashes, start: np.ndarray) -> Hashes:
    """Tells the sessions of a group apart by their starts."""
    mixed = second ^ (start.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(27))
