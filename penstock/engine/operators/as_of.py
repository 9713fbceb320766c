"""Events that look up rows of a table: the version that was valid at a moment, or the newest one.

A version of a row holds from its moment until that of the next version of its key. Events are kept for a while, so that
a version which becomes known late corrects what they found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import MOMENT, SECOND_HASH, PairOutcome, Times, events_of, hashes_of, on_time
from penstock.engine.operators.join import PIECE_PAIRS, Changed, Seen, repeated, seen
from penstock.engine.operators.members import by_group, groups, members
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, RIGHT, SIDE, SideRows
from penstock.engine.operators.sorted_groups import find
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.rows import Numbers, hashes, integers, mask, picked, stacked, taken
from penstock.engine.state.run import Run
from penstock.engine.state.search import NOWHERE, Mask, Positions, firsts, positions

EVENT = "_event"  # when an event happened; its moment is that of the version it looks for
AGE = "_age"  # of two versions with one moment, the newer one has the greater
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Events(SideRows):
    """What is kept of events: all, until `keep` after they happened. With None for it, nothing."""

    keep: int | None

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        return None if self.keep is None else integers(rows, EVENT) + (self.keep + 1)


@dataclass(frozen=True, slots=True)
class Versions(SideRows):
    """What is kept of the table: its versions, until `keep` after the next one began. With None for it, all.

    `keep` may be given only if no version is ever taken back, and events look for the time at which they happened. That
    a row was deleted is forgotten after `keep` too: what is told then of the time before holds again.
    """

    keep: int | None

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        # Of some rows nothing is said: the newest version of a key lasts for ever, and there is one in any run.
        if self.keep is None or not whole:
            return None
        at = in_turn(rows)
        turn = taken(rows.select([ORDER, SECOND_HASH, MOMENT, GONE]), at)
        group, moments = groups(turn), integers(turn, MOMENT)
        ends = np.full(len(at), _NEVER)
        followed = np.append(group[1:] == group[:-1], False)[: len(at)]
        ends[:-1][followed[:-1]] = moments[1:][followed[:-1]] + self.keep
        # That a row is gone says nothing where there is no earlier version.
        nothing = firsts(group) & mask(turn.column(GONE))
        ends[nothing] = np.minimum(ends[nothing], moments[nothing] + self.keep)
        expiry = np.empty(len(at), dtype=np.int64)
        expiry[at] = ends
        return expiry


@dataclass(frozen=True, slots=True)
class AsOf:
    """With "left", events that find nothing are given too."""

    left: Events
    right: Versions
    how: Literal["inner", "left"]

    def step(self, changes: pa.RecordBatch, left: Arrangement, right: Arrangement, times: Times) -> PairOutcome:
        of_right = mask(changes.column(SIDE))
        theirs = self.right.columns.rows(changes, of_right)
        versions = members(theirs, hashes_of(theirs)[0])
        ours, counts = self._in_time(self.left.columns.rows(changes, ~of_right), times)
        events = members(ours, hashes_of(ours)[0])
        history = _History(seen(right, versions, [events.order, versions.order]))
        output = self._output(self._seen(left, events, versions, times), history)
        return PairOutcome(output, self._kept(events), versions, counts, {"events": int(events_of(theirs).sum())})

    def _seen(self, left: Arrangement, events: Run, versions: Run, times: Times) -> Seen:
        """The events that the epoch brings, and those of the keys it changes that are not too old to be corrected."""
        found = seen(left, events, [versions.order])
        if self.left.keep is None:
            return found
        young = integers(found.others.batch, EVENT) + self.left.keep >= times.before
        return Seen(found.changed, Run(picked(found.others.batch, young)))

    def _in_time(self, rows: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, dict[str, int]]:
        late = np.zeros(rows.num_rows, dtype=np.bool_)
        if self.left.keep is not None:
            late = integers(rows, EVENT) + self.left.keep < times.before
        return on_time(rows, late)

    def _kept(self, events: Run) -> Run:
        """The events that may find something else later on."""
        if self.left.keep is None:
            return Run(events.batch.slice(0, 0))
        return Run(picked(events.batch, integers(events.batch, SECOND_HASH) != NO_LEFT_KEY))

    def _output(self, events: Seen, history: _History) -> Iterator[pa.RecordBatch]:
        unchanged = integers(events.others.batch, COUNT)
        for some in (events.changed, Changed(events.others, unchanged, unchanged)):
            was, is_ = history.found(some.rows)
            same = was == is_
            differs = np.flatnonzero(~same)
            for at, version, weights in (
                (np.flatnonzero(same), is_, some.after - some.before),
                (differs, was, -some.before),
                (differs, is_, some.after),
            ):
                yield from self._answers(some.rows, at[weights[at] != 0], (history, version), weights)

    def _answers(
        self, events: Run, at: Positions, found: tuple[_History, Positions], weights: Numbers
    ) -> Iterator[pa.RecordBatch]:
        history, version = found
        ours, theirs = self.left.columns.own(LEFT), self.right.columns.own(RIGHT)
        if self.how == "inner":
            at = at[version[at] != NOWHERE]
        for start in range(0, len(at), PIECE_PAIRS):
            some = at[start : start + PIECE_PAIRS]
            rows = taken(events.batch.select(ours), some)
            yield repeated([rows, history.rows(version[some], theirs)], weights[some])


class _History:
    """The versions that an epoch needs, in turn, as they were before it and are after it."""

    def __init__(self, versions: Seen) -> None:
        changed, others = versions.changed, versions.others.batch
        whole = stacked([changed.rows.batch, others], others.schema)
        at = in_turn(whole)
        there = np.ones(others.num_rows, dtype=np.bool_)
        self._batch = taken(whole, at)
        self._gone = mask(self._batch.column(GONE))
        self._was = self._last(np.concatenate([changed.before > 0, there])[at])
        self._is = self._last(np.concatenate([changed.after > 0, there])[at])
        order, second = hashes(self._batch, ORDER), hashes(self._batch, SECOND_HASH)
        self._starts = np.flatnonzero(firsts(order, second))
        self._order, self._second = order[self._starts], second[self._starts]
        self._group, self._moments = groups(self._batch), integers(self._batch, MOMENT)

    def _last(self, there: Mask) -> Positions:
        """For each version the last one up to it that was there, of whatever key."""
        last: Positions = np.maximum.accumulate(np.where(there, np.arange(len(there)), NOWHERE))
        return last

    def found(self, events: Run) -> tuple[Positions, Positions]:
        """Where events find their versions, before the epoch and after it; NOWHERE where there is none."""
        group = positions(self._order, self._second, events.order, hashes(events.batch, SECOND_HASH))
        behind = find(self._group, self._moments, group, integers(events.batch, MOMENT), "right")
        start = np.append(self._starts, len(self._group))[group]
        known = (group != NOWHERE) & (behind > start)
        return self._valid(self._was, behind, start, known), self._valid(self._is, behind, start, known)

    def _valid(self, last: Positions, behind: Positions, start: Positions, known: Mask) -> Positions:
        version = np.full(len(behind), NOWHERE, dtype=np.int64)
        version[known] = last[behind[known] - 1]
        version[version < start] = NOWHERE
        some = version != NOWHERE
        version[some] = np.where(self._gone[version[some]], NOWHERE, version[some])
        return version

    def rows(self, at: Positions, names: list[str]) -> pa.RecordBatch:
        """The versions at these positions; nulls for NOWHERE."""
        return self._batch.select(names).take(pa.array(at, pa.int64(), mask=at == NOWHERE))


def in_turn(versions: pa.RecordBatch) -> Positions:
    """How to sort versions by key, and those of one key from the oldest to the newest."""
    return by_group(versions, *(integers(versions, name) for name in (MOMENT, AGE, ID)))
