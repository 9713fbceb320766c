"""As-of joins: events look up the version of a table's row that was valid at some time, or the newest one.

A version is valid from its time until that of the next version of its key. Events are kept for a while, so that a
version which arrives late corrects what they found.
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
    PairOutcome,
    Watermarks,
    drop_late,
    events_of,
    hashes_of,
)
from penstock.engine.operators.join import PIECE_PAIRS, AffectedRows, ChangedRows, affected_rows, repeat_rows
from penstock.engine.operators.members import TimeIndex, argsort_by_group, member_groups, member_run
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, RIGHT, SIDE, SideRows
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.rows import Numbers, concat_rows, filter_rows, hashes, integers, mask, take_rows
from penstock.engine.state.run import Run
from penstock.engine.state.search import NOWHERE, Mask, Positions, firsts, lasts

EVENT = "_event"  # when an event happened; its `_time` is the time for which it looks up a version
AGE = "_age"  # of two versions of the same time, the newer one has the greater age
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Events(SideRows):
    """The state of the events: it holds them until `keep` after they happened; nothing if `keep` is None."""

    keep: int | None

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None if self.keep is None else integers(rows, EVENT) + (self.keep + 1)


@dataclass(frozen=True, slots=True)
class Versions(SideRows):
    """The state of the table: it holds a version until `keep` after the next one began; forever if `keep` is None.

    `keep` is only allowed if versions are never retracted and events look up the time at which they happened. A
    deletion is forgotten after `keep` too: a version of an earlier time that arrives later is then valid again.
    """

    keep: int | None

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        # The newest version of a key never expires, and every run has one. So some of the rows tell nothing.
        if self.keep is None or not whole:
            return None
        at = argsort_versions(rows)
        sorted_rows = take_rows(rows.select([ORDER, SECOND_HASH, MOMENT, GONE]), at)
        group, moments = member_groups(sorted_rows), integers(sorted_rows, MOMENT)
        expiries = np.full(len(at), _NEVER)
        begins = firsts(group)
        has_next = ~lasts(begins)
        expiries[:-1][has_next[:-1]] = moments[1:][has_next[:-1]] + self.keep
        # A deletion means nothing if there is no earlier version.
        is_void = begins & mask(sorted_rows.column(GONE))
        expiries[is_void] = np.minimum(expiries[is_void], moments[is_void] + self.keep)
        result = np.empty(len(at), dtype=np.int64)
        result[at] = expiries
        return result


@dataclass(frozen=True, slots=True)
class AsOf:
    """With "left", events that find no version are emitted too."""

    left: Events
    right: Versions
    how: Literal["inner", "left"]

    def step(
        self, changes: pa.RecordBatch, left: Arrangement, right: Arrangement, watermarks: Watermarks
    ) -> PairOutcome:
        of_right = mask(changes.column(SIDE))
        version_rows = self.right.columns.rows(changes, of_right)
        versions = member_run(version_rows, hashes_of(version_rows)[0])
        event_rows, counts = self._drop_late(self.left.columns.rows(changes, ~of_right), watermarks)
        events = member_run(event_rows, hashes_of(event_rows)[0])
        history = _History(affected_rows(right, versions, [events.order, versions.order]))
        output = self._output(self._affected_events(left, events, versions, watermarks), history)
        return PairOutcome(
            output, self._events_to_keep(events), versions, counts, {"events": int(events_of(version_rows).sum())}
        )

    def _affected_events(self, left: Arrangement, events: Run, versions: Run, watermarks: Watermarks) -> AffectedRows:
        """The events of this epoch, and those of the keys it changes that are not too old to be corrected."""
        events_seen = affected_rows(left, events, [versions.order])
        if self.left.keep is None:
            return events_seen
        young = integers(events_seen.unchanged.batch, EVENT) + self.left.keep >= watermarks.before
        return AffectedRows(events_seen.changed, Run(filter_rows(events_seen.unchanged.batch, young)))

    def _drop_late(self, rows: pa.RecordBatch, watermarks: Watermarks) -> tuple[pa.RecordBatch, dict[str, int]]:
        late = np.zeros(rows.num_rows, dtype=np.bool_)
        if self.left.keep is not None:
            late = integers(rows, EVENT) + self.left.keep < watermarks.before
        return drop_late(rows, late)

    def _events_to_keep(self, events: Run) -> Run:
        """The events that may find another version later."""
        if self.left.keep is None:
            return Run(events.batch.slice(0, 0))
        return Run(filter_rows(events.batch, integers(events.batch, SECOND_HASH) != NO_LEFT_KEY))

    def _output(self, events: AffectedRows, history: _History) -> Iterator[pa.RecordBatch]:
        unchanged = integers(events.unchanged.batch, COUNT)
        for part in (events.changed, ChangedRows(events.unchanged, unchanged, unchanged)):
            version_before, version_after = history.find(part.rows)
            is_same = version_before == version_after
            changed_at = np.flatnonzero(~is_same)
            for at, version, weights in (
                (np.flatnonzero(is_same), version_after, part.after - part.before),
                (changed_at, version_before, -part.before),
                (changed_at, version_after, part.after),
            ):
                yield from self._answers(part.rows, at[weights[at] != 0], (history, version), weights)

    def _answers(
        self, events: Run, at: Positions, version_found: tuple[_History, Positions], weights: Numbers
    ) -> Iterator[pa.RecordBatch]:
        history, version = version_found
        left_names, right_names = self.left.columns.user_columns(LEFT), self.right.columns.user_columns(RIGHT)
        if self.how == "inner":
            at = at[version[at] != NOWHERE]
        for start in range(0, len(at), PIECE_PAIRS):
            piece = at[start : start + PIECE_PAIRS]
            rows = take_rows(events.batch.select(left_names), piece)
            yield repeat_rows([rows, history.rows(version[piece], right_names)], weights[piece])


class _History:
    """The versions that an epoch needs, from oldest to newest by key, as they were before it and are after it."""

    def __init__(self, versions: AffectedRows) -> None:
        changed_rows, unchanged = versions.changed, versions.unchanged.batch
        rows = concat_rows([changed_rows.rows.batch, unchanged], unchanged.schema)
        at = argsort_versions(rows)
        present = np.ones(unchanged.num_rows, dtype=np.bool_)
        self._batch = take_rows(rows, at)
        self._gone = mask(self._batch.column(GONE))
        self._last_before = self._last_present(np.concatenate([changed_rows.before > 0, present])[at])
        self._last_after = self._last_present(np.concatenate([changed_rows.after > 0, present])[at])
        order, second = hashes(self._batch, ORDER), hashes(self._batch, SECOND_HASH)
        self._index = TimeIndex(order, second, integers(self._batch, MOMENT))

    def _last_present(self, present: Mask) -> Positions:
        """For each version the last one up to it that is present, of any key."""
        last: Positions = np.maximum.accumulate(np.where(present, np.arange(len(present)), NOWHERE))
        return last

    def find(self, events: Run) -> tuple[Positions, Positions]:
        """The positions of the versions that events find, before the epoch and after it; NOWHERE if there is none."""
        group = self._index.groups_of(events)
        start, end = self._index.starts_of(group), self._index.find(group, integers(events.batch, MOMENT), "right")
        has_candidate = (group != NOWHERE) & (end > start)
        before = self._valid_versions(self._last_before, start, end, has_candidate)
        return before, self._valid_versions(self._last_after, start, end, has_candidate)

    def _valid_versions(self, last: Positions, start: Positions, end: Positions, has_candidate: Mask) -> Positions:
        version = np.full(len(end), NOWHERE, dtype=np.int64)
        version[has_candidate] = last[end[has_candidate] - 1]
        version[version < start] = NOWHERE
        is_found = version != NOWHERE
        version[is_found] = np.where(self._gone[version[is_found]], NOWHERE, version[is_found])
        return version

    def rows(self, at: Positions, names: list[str]) -> pa.RecordBatch:
        """The versions at these positions; nulls for NOWHERE."""
        return self._batch.select(names).take(pa.array(at, pa.int64(), mask=at == NOWHERE))


def argsort_versions(versions: pa.RecordBatch) -> Positions:
    """The permutation that sorts versions by key, and those of the same key from oldest to newest."""
    return argsort_by_group(versions, *(integers(versions, name) for name in (MOMENT, AGE, ID)))
