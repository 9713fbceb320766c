"""An arrangement: the runs of one state partition as one thing, to look up in and to add to.

Rows with the same key may lie in several runs. How they become one says the kind of the state:

- *adding*: what a run says is added to what older runs say (a count, a sum, a least value), with a rule per column. A
  key whose `_n` has become zero is gone. A row with `_whole` says all there is: what older runs say counts no more.
- *replacing*: what a newer run says is what counts. A row with `_gone` takes away what older runs say.

Each epoch adds at most one run. Runs are merged when an older one is not much larger than the next, so there are few,
and each row is copied a number of times that grows with the logarithm of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.engine.state.columns import COUNT, GONE, WHOLE
from penstock.engine.state.combine import Rule, rejoined, together
from penstock.engine.state.rows import Numbers, gathered, integers, mask, nulls, picked, stacked, taken, with_columns
from penstock.engine.state.run import Run
from penstock.engine.state.search import NOWHERE, Hashes, Mask, Positions, interleaved, lower_bounds, positions, ranges

# An older run this many times larger than the next is left alone.
GROWTH = 3
# Columns of text hold at most 2 GiB in one batch, so runs are not merged beyond this.
MOST_BYTES = 1024 * 1024 * 1024

Keep = Callable[[pa.RecordBatch], Mask]
Expires = Callable[[pa.RecordBatch, bool], Numbers | None]
"""From which watermark on rows cannot be reached any more (None: never), given whether they are all of their state."""


@dataclass(frozen=True, slots=True)
class Adding:
    """What the columns of an adding state mean; columns that are not named are the same in all rows of a key.

    `titles` says what a user would call them.
    """

    rules: dict[str, Rule]
    titles: dict[str, str] = field(default_factory=dict)

    def together(self, older: pa.RecordBatch, newer: pa.RecordBatch) -> pa.RecordBatch:
        """Two batches, row by row of the same keys, as one."""
        if WHOLE not in newer.schema.names:
            return self._summed(older, newer)
        whole = mask(newer.column(WHOLE))
        summed = self._summed(picked(older, ~whole), picked(newer, ~whole))
        both = rejoined(whole, picked(newer, whole), summed) if whole.any() else summed
        return with_columns(both, {WHOLE: whole | mask(older.column(WHOLE))})

    def _summed(self, older: pa.RecordBatch, newer: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            together(self.rules.get(name, "same"), older.column(name), newer.column(name), self.titles.get(name, name))
            for name in newer.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=newer.schema)

    def merged(self, older: Run, newer: Run) -> Run:
        """Two runs as one."""
        run = _merged(older, newer, self.together)
        if set(self.rules) != {COUNT}:
            return run  # a part that counts for nothing may still change a sum
        return Run(picked(run.batch, self.alive(run.batch)))

    def alive(self, rows: pa.RecordBatch) -> Mask:
        alive: Mask = integers(rows, COUNT) != 0
        return alive


@dataclass(frozen=True, slots=True)
class Replacing:
    """A state in which the newest row of a key counts."""

    def merged(self, older: Run, newer: Run) -> Run:
        return _merged(older, newer, lambda _, replacing: replacing)

    def alive(self, rows: pa.RecordBatch) -> Mask:
        return ~mask(rows.column(GONE))


Kind = Adding | Replacing


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The runs of one state partition, oldest first."""

    kind: Kind
    schema: pa.Schema
    runs: tuple[Run, ...] = ()

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def look_up(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Mask]:
        """The rows of those of these keys (unique, best sorted) that have one, in their order; and which have one."""
        found, keys = self._newest(order, id_) if isinstance(self.kind, Replacing) else self._added_up(order, id_)
        alive = self.kind.alive(found)
        found, keys = picked(found, alive), keys[alive]
        there = np.zeros(len(order), dtype=np.bool_)
        there[keys] = True
        return (found if _rises(keys) else taken(found, np.argsort(keys))), there

    def _newest(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Positions]:
        """Of each key what the newest run says that knows it, and the numbers of these keys."""
        rows, keys = [], [np.empty(0, dtype=np.int64)]
        unknown = np.arange(len(order))
        for run in reversed(self.runs):
            at = positions(run.order, run.id, order[unknown], id_[unknown])
            known = at != NOWHERE
            rows.append(taken(run.batch, at[known]))
            keys.append(unknown[known])
            unknown = unknown[~known]
        return stacked(rows, self.schema), np.concatenate(keys)

    def _added_up(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Positions]:
        """Of each key all that the runs say, added up, and the numbers of these keys."""
        parts = []
        for run in self.runs:
            at = positions(run.order, run.id, order, id_)
            parts.append(taken(run.batch, np.sort(at[at != NOWHERE])))
        found = self._folded(parts)
        at = positions(found.order, found.id, order, id_)
        keys = np.flatnonzero(at != NOWHERE)
        return (found.batch if _rises(at[keys]) else taken(found.batch, at[keys])), keys

    def of_orders(self, order: Hashes) -> Run:
        """All rows whose order is one of these (unique and sorted), as one run."""
        found = self._folded([taken(run.batch, ranges(run.order, order)) for run in self.runs])
        return self._living(found)

    def between(self, bounds: Sequence[tuple[int, int]], keep: Keep) -> Run:
        """All rows whose order lies in one of these ranges (ends included) and that `keep` wants, as one run."""
        parts = []
        for run in self.runs:
            for low, high in bounds:
                start = int(np.searchsorted(run.order, np.uint64(low), side="left"))
                end = int(np.searchsorted(run.order, np.uint64(high), side="right"))
                part = run.batch.slice(start, end - start)
                parts.append(picked(part, keep(part)))
        return self._living(self._folded(parts))

    def _folded(self, parts: Sequence[pa.RecordBatch]) -> Run:
        """Parts of runs, oldest first, as one run.

        It begins with the newest, which are small, so that large ones are copied once; and since merging does the same
        with the newest runs, sums of doubles come out the same to the last digit, whatever was merged in between.
        """
        folded = Run(nulls(self.schema, 0))
        for part in reversed(parts):
            folded = self.kind.merged(Run(part), folded)
        return folded

    def _living(self, run: Run) -> Run:
        return Run(picked(run.batch, self.kind.alive(run.batch)))

    # -- adding to ----------------------------------------------------------------------------------------------------

    def with_run(self, run: Run) -> Arrangement:
        return Arrangement(self.kind, self.schema, (*self.runs, run)) if run.rows else self

    def settled(self, expires: Expires, watermark: int) -> tuple[int, Run]:
        """How many of the oldest runs stay as they are, and all others as one run, which may be empty.

        The newest run is one of the others. Rows that cannot be reached any more are left out where runs are merged.
        """
        count = max(1, self.merges())
        if count == 1:
            return len(self.runs) - 1, self.runs[-1]
        return len(self.runs) - count, self.merged(count, expires, watermark)

    def merges(self) -> int:
        """How many of the newest runs should become one; 0 or 1 for none."""
        count, rows, size = 0, 0, 0
        for run in reversed(self.runs):
            size += run.batch.nbytes
            if (count and run.rows > GROWTH * rows) or size > MOST_BYTES:
                break
            rows += run.rows
            count += 1
        return count

    def merged(self, count: int, expires: Expires, watermark: int) -> Run:
        """The newest `count` runs as one, without rows that cannot be reached any more."""
        folded = self._folded([run.batch for run in self.runs[len(self.runs) - count :]])
        whole = count == len(self.runs)
        if whole:  # nothing older is left that a row which says 'gone' could hide
            folded = self._living(folded)
        ends = expires(folded.batch, whole)
        return folded if ends is None else Run(picked(folded.batch, ends > watermark))


def last_expiry(expires: Expires, run: Run) -> int | None:
    """From which watermark on no row of a run can be reached any more; None: some last for ever."""
    ends = expires(run.batch, False)
    return None if ends is None else int(ends.max())


def _merged(older: Run, newer: Run, both: Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]) -> Run:
    """Two runs as one; `both` makes one row of two with the same key."""
    if not older.rows or not newer.rows:
        return newer if newer.rows else older
    at = lower_bounds(older.order, older.id, newer.order, newer.id)
    inside = np.minimum(at, older.rows - 1)
    known = (older.order[inside] == newer.order) & (older.id[inside] == newer.id)
    joined = both(taken(older.batch, at[known]), picked(newer.batch, known))
    rows = [older.batch, joined, picked(newer.batch, ~known)]
    # Joined rows stand where the older ones stood, and new ones in between.
    fresh = older.rows + joined.num_rows
    places = np.arange(older.rows)
    places[at[known]] = np.arange(older.rows, fresh)
    behind = np.arange(fresh, fresh + rows[2].num_rows)
    return Run(gathered(rows, interleaved(places, behind, at[~known])))


def _rises(at: Positions) -> bool:
    return bool((at[1:] > at[:-1]).all())
