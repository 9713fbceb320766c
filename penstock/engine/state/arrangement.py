"""An arrangement: the runs of one state partition as one thing, to look up in and to add to.

Rows with the same key may lie in several runs; a `Rule` per column says how they become one. Two kinds of state:

- *adding*: what a run says is added to what older runs say (a count, a sum, a least value). A row whose `_n` has become
  zero is gone.
- *replacing*: what a newer run says is what counts. A row with `_gone` takes away what older runs say.

Each epoch adds at most one run. Runs are merged when an older one is not much larger than the next, so there are few, and
each row is copied a number of times that grows with the logarithm of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.state.run import Hashes, Positions, Run, sorted_run
from penstock.engine.state.search import NOWHERE, positions, ranges

Rule = Literal["sum", "min", "max", "same"]
WEIGHT = "_n"
GONE = "_gone"
# An older run this many times larger than the next is left alone.
GROWTH = 3
# Columns of text hold at most 2 GiB in one batch, so runs are not merged beyond this.
MOST_BYTES = 1024 * 1024 * 1024

Mask = npt.NDArray[np.bool_]
Keep = Callable[[pa.RecordBatch], Mask]


@dataclass(frozen=True, slots=True)
class Adding:
    """What the columns of an adding state mean; columns that are not named are the same in all rows of a key."""

    rules: dict[str, Rule]

    def together(self, older: pa.RecordBatch, newer: pa.RecordBatch) -> pa.RecordBatch:
        """Two batches, row by row the same keys (all nulls where a side does not have it), as one."""
        return pa.RecordBatch.from_arrays(
            [
                _together(self.rules.get(name, "same"), older.column(name), newer.column(name))
                for name in newer.schema.names
            ],
            schema=newer.schema,
        )

    def merged(self, older: Run, newer: Run) -> Run:
        """Two runs as one, without rows that have become nothing."""
        at = positions(older.order, older.id, newer.order, newer.id)
        matched = at != NOWHERE
        both = self.together(taken(older.batch, at[matched]), newer.batch.filter(pa.array(matched)))
        left = np.ones(older.rows, dtype=np.bool_)
        left[at[matched]] = False
        run = _concatenated(
            [older.batch.filter(pa.array(left)), both, newer.batch.filter(pa.array(~matched))], newer.batch.schema
        )
        if WEIGHT not in self.rules:
            return run
        return Run(run.batch.filter(pc.not_equal(run.batch.column(WEIGHT), 0)))


@dataclass(frozen=True, slots=True)
class Replacing:
    """A state in which the newest row of a key counts."""

    def merged(self, older: Run, newer: Run) -> Run:
        at = positions(older.order, older.id, newer.order, newer.id)
        left = np.ones(older.rows, dtype=np.bool_)
        left[at[at != NOWHERE]] = False
        return _concatenated([older.batch.filter(pa.array(left)), newer.batch], newer.batch.schema)


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

    def look_up(self, order: Hashes, id_: Hashes) -> tuple[pa.RecordBatch, Mask]:
        """For each key (unique) the row it has, all nulls where it has none; and which have one."""
        found: pa.RecordBatch | None = None
        there = np.zeros(len(order), dtype=np.bool_)
        for run in self.runs:
            at = positions(run.order, run.id, order, id_)
            hit = at != NOWHERE
            if not hit.any():
                continue
            rows = taken(run.batch, at)
            if found is None:
                found = rows
            elif isinstance(self.kind, Adding):
                found = self.kind.together(found, rows)
            else:
                found = chosen(hit, rows, found)
            there |= hit
        if found is None:
            return nulls(self.schema, len(order)), there
        return found, there & self._alive(found)

    def _alive(self, rows: pa.RecordBatch) -> Mask:
        if isinstance(self.kind, Replacing):
            if GONE not in rows.schema.names:
                return np.ones(rows.num_rows, dtype=np.bool_)
            return ~mask(rows.column(GONE))
        if WEIGHT in self.kind.rules:
            return mask(pc.not_equal(rows.column(WEIGHT), 0))
        return np.ones(rows.num_rows, dtype=np.bool_)

    def of_orders(self, order: Hashes) -> Run:
        """All rows whose order is one of these (unique), as one run."""
        return self._folded([taken(run.batch, ranges(run.order, order)) for run in self.runs])

    def between(self, bounds: Sequence[tuple[int, int]], keep: Keep) -> Run:
        """All rows whose order lies in one of these ranges (ends included) and that `keep` wants, as one run."""
        parts = []
        for run in self.runs:
            for low, high in bounds:
                start = int(np.searchsorted(run.order, np.uint64(low), side="left"))
                end = int(np.searchsorted(run.order, np.uint64(high), side="right"))
                part = run.batch.slice(start, end - start)
                parts.append(part.filter(pa.array(keep(part))))
        return self._folded(parts)

    def _folded(self, parts: Sequence[pa.RecordBatch]) -> Run:
        folded = Run(nulls(self.schema, 0))
        for part in parts:
            if part.num_rows:
                folded = self.kind.merged(folded, Run(part)) if folded.rows else Run(part)
        if not folded.rows:
            return folded
        return Run(folded.batch.filter(pa.array(self._alive(folded.batch))))

    def with_run(self, run: Run) -> Arrangement:
        return Arrangement(self.kind, self.schema, (*self.runs, run)) if run.rows else self

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

    def merged(self, count: int, keep: Keep | None) -> Run:
        """The newest `count` runs as one, without rows that `keep` does not want."""
        chosen_runs = self.runs[len(self.runs) - count :]
        folded = chosen_runs[0]
        for run in chosen_runs[1:]:
            folded = self.kind.merged(folded, run)
        wanted = np.ones(folded.rows, dtype=np.bool_)
        if keep is not None:
            wanted &= keep(folded.batch)
        if count == len(self.runs):  # nothing older is left that a row which says 'gone' could hide
            wanted &= self._alive(folded.batch)
        return folded if wanted.all() else Run(folded.batch.filter(pa.array(wanted)))


# -- rows -------------------------------------------------------------------------------------------------------------


def taken(batch: pa.RecordBatch, at: Positions) -> pa.RecordBatch:
    """The rows at these positions; all nulls for NOWHERE."""
    missing = at == NOWHERE
    return batch.take(pa.array(at, mask=missing) if missing.any() else pa.array(at))


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def chosen(first: Mask, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """Row by row from `one` where `first` says so, else from `other`."""
    picks = pa.array(first)
    return pa.RecordBatch.from_arrays(
        [pc.if_else(picks, ours, theirs) for ours, theirs in zip(one.columns, other.columns, strict=True)],
        schema=one.schema,
    )


def mask(column: pa.Array[pa.BooleanScalar]) -> Mask:
    """A column of booleans as an array; null is false."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _together(rule: Rule, older: pa.Array, newer: pa.Array) -> pa.Array:
    if rule == "same":
        return pc.coalesce(newer, older)
    if rule == "min":
        return pc.min_element_wise(older, newer)
    if rule == "max":
        return pc.max_element_wise(older, newer)
    if not older.null_count and not newer.null_count:
        return _sum(older, newer)
    return pc.coalesce(_sum(older, newer), older, newer)


def _sum(older: pa.Array, newer: pa.Array) -> pa.Array:
    total = pc.add_checked(older, newer)
    return total if total.type == older.type else total.cast(older.type)  # decimals get a digit more


def _concatenated(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Run:
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return Run(nulls(schema, 0))
    return sorted_run(batches[0] if len(batches) == 1 else pa.concat_batches(batches))
