"""An arrangement: the runs of one state partition, looked up in and added to as one.

Rows of the same key may be in several runs. The kind of the state says how they become one row:

- *adding*: a newer row is added to the older ones (a count, a sum, a minimum), with a rule per column. A key whose `_n`
  reaches zero is deleted. A row with `_whole` is the complete state of its key: older rows no longer count.
- *replacing*: the newest row counts. A row with `_gone` deletes its key.

Rows that have expired are not found any more. They may still be stored, while what has deleted them is not: a run is
dropped as soon as all of its rows have expired, and an older one may last longer.

Each epoch adds at most one run. The newest runs are merged, up to the first older one that is much larger than all of
them. So there are few runs, and the number of times a row is copied grows with the logarithm of the state's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.engine.state.columns import COUNT, GONE, WHOLE
from penstock.engine.state.combine import CombineRows, Rule, combine_columns, interleave_rows
from penstock.engine.state.rows import (
    Numbers,
    concat_rows,
    filter_rows,
    gather_rows,
    integers,
    mask,
    null_rows,
    take_rows,
    with_columns,
)
from penstock.engine.state.run import Run
from penstock.engine.state.search import (
    NOWHERE,
    Hashes,
    Mask,
    Positions,
    interleave,
    lower_bounds,
    positions,
    positions_of_orders,
)

# A run that is this many times larger than all newer ones is not merged with them.
GROWTH = 3
# A text column of one batch holds at most 2 GiB, so merging stops well below that.
MOST_BYTES = 1024 * 1024 * 1024

RowFilter = Callable[[pa.RecordBatch], Mask]
Expiry = Callable[[pa.RecordBatch, bool], Numbers | None]
"""For rows of a state, the watermarks at which they expire; None: never. The flag says that these are all its rows.

All rows of a key expire at the same watermark, or newer rows later than older ones.
"""


@dataclass(frozen=True, slots=True)
class Adding:
    """A state whose rows are added up, with a rule per column.

    A column without a rule has the same value in all rows of a key. `titles` are the names that errors use for columns.
    """

    rules: dict[str, Rule]
    titles: dict[str, str] = field(default_factory=dict)

    def combine_rows(self, older: pa.RecordBatch, newer: pa.RecordBatch) -> pa.RecordBatch:
        """Combine two batches of the same keys, row by row."""
        if WHOLE not in newer.schema.names:
            return self._sum_rows(older, newer)
        whole = mask(newer.column(WHOLE))
        sums = self._sum_rows(filter_rows(older, ~whole), filter_rows(newer, ~whole))
        rows = interleave_rows(whole, filter_rows(newer, whole), sums) if whole.any() else sums
        return with_columns(rows, {WHOLE: whole | mask(older.column(WHOLE))})

    def _sum_rows(self, older: pa.RecordBatch, newer: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            combine_columns(
                self.rules.get(name, "same"), older.column(name), newer.column(name), self.titles.get(name, name)
            )
            for name in newer.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=newer.schema)

    def merge(self, older: Run, newer: Run) -> Run:
        """Merge two runs into one."""
        run = _merge_runs(older, newer, self.combine_rows)
        if set(self.rules) != {COUNT}:
            return run  # a row with a count of zero may still change a sum
        return Run(filter_rows(run.batch, self.alive(run.batch)))

    def alive(self, rows: pa.RecordBatch) -> Mask:
        alive: Mask = integers(rows, COUNT) != 0
        return alive


@dataclass(frozen=True, slots=True)
class Replacing:
    """A state in which only the newest row of a key counts."""

    def merge(self, older: Run, newer: Run) -> Run:
        return _merge_runs(older, newer, lambda _, newer_rows: newer_rows)

    def alive(self, rows: pa.RecordBatch) -> Mask:
        return ~mask(rows.column(GONE))


Kind = Adding | Replacing


def never_expires(rows: pa.RecordBatch, whole: bool) -> None:
    """The expiry of states, and of views, whose rows stay forever."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The runs of one state partition, oldest first, as of a watermark."""

    kind: Kind
    schema: pa.Schema
    runs: tuple[Run, ...] = ()
    expiry: Expiry = never_expires
    watermark: int = 0

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def look_up(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Mask]:
        """Look up keys, which must be unique and are found faster if sorted.

        Returns the rows that were found, in the order of the keys, and which keys have one.
        """
        look_up = self._look_up_newest if isinstance(self.kind, Replacing) else self._look_up_sums
        rows, keys = look_up(order, id_)
        alive = self._alive(rows)
        rows, keys = filter_rows(rows, alive), keys[alive]
        has_row = np.zeros(len(order), dtype=np.bool_)
        has_row[keys] = True
        return (rows if _is_ascending(keys) else take_rows(rows, np.argsort(keys))), has_row

    def _look_up_newest(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Positions]:
        """For each key the row of the newest run that has it; and the numbers of the keys that were found."""
        rows, keys = [], [np.empty(0, dtype=np.int64)]
        missing = np.arange(len(order))
        for run in reversed(self.runs):
            at = positions(run.order, run.id, order[missing], id_[missing])
            in_run = at != NOWHERE
            rows.append(take_rows(run.batch, at[in_run]))
            keys.append(missing[in_run])
            missing = missing[~in_run]
        return concat_rows(rows, self.schema), np.concatenate(keys)

    def _look_up_sums(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Positions]:
        """For each key the sum of its rows in all runs; and the numbers of the keys that were found."""
        parts = []
        for run in self.runs:
            at = positions(run.order, run.id, order, id_)
            parts.append(take_rows(run.batch, np.sort(at[at != NOWHERE])))
        sums = self._fold(parts)
        at = positions(sums.order, sums.id, order, id_)
        keys = np.flatnonzero(at != NOWHERE)
        return (sums.batch if _is_ascending(at[keys]) else take_rows(sums.batch, at[keys])), keys

    def rows_of_orders(self, order: Hashes) -> Run:
        """All rows whose order is one of these, which must be unique and sorted, as one run."""
        rows = self._fold([take_rows(run.batch, positions_of_orders(run.order, order)) for run in self.runs])
        return self._live_rows(rows)

    def rows_between(self, bounds: Sequence[tuple[int, int]], keep: RowFilter) -> Run:
        """All rows that `keep` selects and whose order is in one of these ranges, ends included, as one run."""
        parts = []
        for run in self.runs:
            for low, high in bounds:
                start = int(np.searchsorted(run.order, np.uint64(low), side="left"))
                end = int(np.searchsorted(run.order, np.uint64(high), side="right"))
                part = run.batch.slice(start, end - start)
                parts.append(filter_rows(part, keep(part)))
        return self._live_rows(self._fold(parts))

    def _fold(self, parts: Sequence[pa.RecordBatch]) -> Run:
        """Merge parts of runs, given oldest first, into one run.

        It starts from the newest, which are the small ones, so a large one is copied once. Merging runs on disk goes in
        the same order, so sums of doubles are the same to the last digit, no matter which runs were merged before.
        """
        result = Run(null_rows(self.schema, 0))
        for part in reversed(parts):
            result = self.kind.merge(Run(part), result)
        return result

    def _live_rows(self, run: Run) -> Run:
        return Run(filter_rows(run.batch, self._alive(run.batch)))

    def _alive(self, rows: pa.RecordBatch) -> Mask:
        """Which rows are neither deleted nor expired."""
        alive, expiries = self.kind.alive(rows), self.expiry(rows, False)
        return alive if expiries is None else alive & (expiries > self.watermark)

    # -- adding -------------------------------------------------------------------------------------------------------

    def with_run(self, run: Run) -> Arrangement:
        return replace(self, runs=(*self.runs, run)) if run.rows else self

    def merge_small_runs(self, watermark: int = 0) -> tuple[int, Run]:
        """Merge the newest runs, as far as that pays: how many of the oldest stay, and all others as one run.

        The newest run is always among the others. Merging drops what has expired by this watermark, so the run may be
        empty.
        """
        count = max(1, self.merge_count())
        if count == 1:
            return len(self.runs) - 1, self.runs[-1]
        return len(self.runs) - count, self.merge_newest(count, watermark)

    def merge_count(self) -> int:
        """How many of the newest runs should be merged into one; 0 or 1: none."""
        return newest_to_merge(((run.rows, run.batch.nbytes) for run in reversed(self.runs)), MOST_BYTES)

    def merge_newest(self, count: int, watermark: int = 0) -> Run:
        """Merge the newest `count` runs into one, without the rows that have expired by this watermark."""
        result = self._fold([run.batch for run in self.runs[len(self.runs) - count :]])
        is_all = count == len(self.runs)
        if is_all:  # there is no older run whose rows a deletion must still hide
            result = Run(filter_rows(result.batch, self.kind.alive(result.batch)))
        expiries = self.expiry(result.batch, is_all)
        return result if expiries is None else Run(filter_rows(result.batch, expiries > watermark))


def newest_to_merge(runs: Iterable[tuple[int, int]], most_bytes: int) -> int:
    """How many of the newest runs should be merged into one; 0 or 1: none.

    `runs` are the size and the bytes of each, from the newest to the oldest. The first that is much larger than all
    newer ones is left alone, with all older ones; so is one with which the merged run would have more than
    `most_bytes`.
    """
    count = size = total_bytes = 0
    for run_size, run_bytes in runs:
        total_bytes += run_bytes
        if (count and run_size > GROWTH * size) or total_bytes > most_bytes:
            break
        size += run_size
        count += 1
    return count


def last_expiry(expiry: Expiry, run: Run) -> int | None:
    """The watermark at which the last row of a run expires; None: some never do."""
    expiries = expiry(run.batch, False)
    return None if expiries is None else int(expiries.max())


def _merge_runs(older: Run, newer: Run, combine: CombineRows) -> Run:
    """Merge two runs into one; `combine` makes one row of two with the same key."""
    if not older.rows or not newer.rows:
        return newer if newer.rows else older
    at = lower_bounds(older.order, older.id, newer.order, newer.id)
    inside = np.minimum(at, older.rows - 1)
    in_both = (older.order[inside] == newer.order) & (older.id[inside] == newer.id)
    combined_rows = combine(take_rows(older.batch, at[in_both]), filter_rows(newer.batch, in_both))
    rows = [older.batch, combined_rows, filter_rows(newer.batch, ~in_both)]
    # A combined row replaces the older one in its position; rows with new keys go in between.
    first_new = older.rows + combined_rows.num_rows
    older_at = np.arange(older.rows)
    older_at[at[in_both]] = np.arange(older.rows, first_new)
    new_at = np.arange(first_new, first_new + rows[2].num_rows)
    return Run(gather_rows(rows, interleave(older_at, new_at, at[~in_both])))


def _is_ascending(at: Positions) -> bool:
    return bool((at[1:] > at[:-1]).all())
