"""One view of one commit, open: its rows as an Arrow table that DuckDB scans in place, and look-ups by key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.derive.views.keys import ViewKey
from penstock.derive.views.runs import Count, LiveRun, NegativeCountError, Opener, OpenPartition
from penstock.engine.ledger.records import StoredView
from penstock.engine.state.columns import GONE
from penstock.engine.state.rows import Column, mask
from penstock.engine.state.run import Run
from penstock.engine.state.search import Mask
from penstock.errors import DamagedError
from penstock.schema.arrow import check_columns, parse_schema

REBUILD = "build the views again from the log: penstock run --rebuild; or restore a savepoint: penstock savepoint list"
LIVE = "_penstock_live"
"""A column that says which rows count. No column of a view starts like this."""
COPIES = "_penstock_copies"
"""A column that says how many more copies of a row there are."""
# Runs up to this size, and runs with a small share of live rows, are copied without the rows that do not count.
SMALL_ROWS = 16_384
SMALL_LIVE_SHARE = 0.2
# How many copies of a repeated row are produced at a time.
MOST_COPIES = 2_048


@dataclass(frozen=True, slots=True)
class ViewRows:
    """The rows of a view: those of `table` where LIVE is true, if it has that column, and copies of `repeated`."""

    table: pa.Table
    repeated: pa.Table | None


class OpenView:
    """A view as one commit names it. It never changes; `open` makes the view of a later commit from it."""

    def __init__(self, name: str, stored: StoredView, partitions: Mapping[int, OpenPartition]) -> None:
        self.name = name
        self.stored = stored
        self.partitions = partitions

    @classmethod
    def open(cls, name: str, stored: StoredView, open_run: Opener, before: OpenView | None) -> OpenView:
        """Open the runs that are not open yet. `before` is the view as of another commit, if that is open."""
        known: Mapping[int, OpenPartition] = {}
        if before is not None and before.stored.growth == stored.growth:
            known = before.partitions
        empty = OpenPartition(stored.growth)
        partitions = {number: known.get(number, empty).follow(runs, open_run) for number, runs in stored.runs.items()}
        if before is not None and before.stored == stored:
            return before
        return cls(name, stored, partitions)

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns, all of them nullable: runs do not store whether a column may be null."""
        return pa.schema([field.with_nullable(True) for field in parse_schema(self.stored.columns)])

    @cached_property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def chosen_columns(self, columns: Sequence[str] | None) -> list[str]:
        """The columns that are asked for; None means all. DeclarationError if the view does not have one."""
        return check_columns(columns, self.names, where=f"view '{self.name}'")

    @cached_property
    def row_count(self) -> int:
        return sum(live_run.rows for live_run in self._live_runs())

    @cached_property
    def rows(self) -> ViewRows:
        chunks, repeated = [], []
        for live_run in self._live_runs():
            batch = self._own_columns(live_run.run)
            chunks.append(_live_chunk(batch, live_run.live))
            if live_run.counts is not None:
                repeated.append(_repeated_rows(batch, live_run.counts))
        return ViewRows(_table(self.schema, chunks), pa.Table.from_batches(repeated) if repeated else None)

    def batches(self, runs: Sequence[Run] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of all runs or of some, each as often as it counts."""
        for live_run in self._live_runs():
            if runs is not None and all(live_run.run is not run for run in runs):
                continue
            batch = self._own_columns(live_run.run)
            if live_run.counts is not None:
                yield from _copied_rows(batch, live_run.counts)
            else:
                yield batch if live_run.live is None else batch.filter(boolean_array(live_run.live))

    def _live_runs(self) -> Iterator[LiveRun]:
        for number, partition in self.partitions.items():
            try:
                yield from partition.live_runs()
            except NegativeCountError:
                raise DamagedError(
                    f"view '{self.name}': in partition {number} more rows were removed than it had",
                    hint=REBUILD,
                ) from None

    def _own_columns(self, run: Run) -> pa.RecordBatch:
        """The columns of the view, without those by which its runs are sorted and added up."""
        return view_columns(run.batch, self.schema, self.name)

    # -- the row of a key ---------------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> ViewKey:
        return ViewKey(self.name, self.stored, self.schema)

    def find(self, values: tuple[object, ...]) -> FoundRow | None:
        """Find the row of a key; None if there is none."""
        order, id_ = self.key.hashes(values)
        for runs in self._searchable_runs:
            for run in runs:
                at = run.position(order, id_)
                if at is None:
                    continue
                if run.is_gone(at) or not self.key.matches(run.columns, at, values):
                    break  # older runs of this partition no longer matter
                return FoundRow(run.batch, run.columns, at)
        return None

    @cached_property
    def _searchable_runs(self) -> list[list[_SearchableRun]]:
        """The runs of each partition, newest first."""
        return [
            [
                _SearchableRun.of(run, self._own_columns(run))
                for (run,) in reversed(list(partition.runs.values()))
                if run.rows
            ]
            for partition in self.partitions.values()
        ]


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row in a batch with the columns of a view."""

    batch: pa.RecordBatch
    columns: list[Column]
    at: int


@dataclass(frozen=True, slots=True)
class _SearchableRun:
    """A run for finding one row at a time. It uses memoryviews, because a call of numpy costs more than the search."""

    orders: memoryview
    ids: memoryview
    gone: Mask | None
    batch: pa.RecordBatch
    columns: list[Column]

    @classmethod
    def of(cls, run: Run, batch: pa.RecordBatch) -> _SearchableRun:
        gone = mask(run.batch.column(GONE))
        return cls(run.order.data, run.id.data, gone if gone.any() else None, batch, batch.columns)

    def position(self, order: int, id_: int) -> int | None:
        orders = self.orders
        at = bisect_left(orders, order)
        while at < len(orders) and orders[at] == order:
            if self.ids[at] == id_:
                return at
            at += 1
        return None

    def is_gone(self, at: int) -> bool:
        return self.gone is not None and bool(self.gone[at])


def view_columns(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The columns of a schema, from a batch that has more. DamagedError if one is missing or has another type."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names or batch.schema.field(field.name).type != field.type:
            raise DamagedError(
                f"view '{name}': a file of it has no column '{field.name}' of type {field.type}",
                hint=REBUILD,
            )
        columns.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- tables of live rows ----------------------------------------------------------------------------------------------

_Chunk = tuple[pa.RecordBatch, Mask | None]


def _live_chunk(batch: pa.RecordBatch, live: Mask | None) -> _Chunk:
    """A batch with the mask of its live rows; or a copy of the live rows and None, if it is small."""
    if live is None or live.all():
        return batch, None
    if batch.num_rows <= SMALL_ROWS or live.mean() < SMALL_LIVE_SHARE:
        return batch.filter(boolean_array(live)), None
    return batch, live


def _table(schema: pa.Schema, chunks: list[_Chunk]) -> pa.Table:
    small = [batch for batch, live in chunks if live is None and batch.num_rows <= SMALL_ROWS]
    if len(small) > 1:
        merged = pa.Table.from_batches(small).combine_chunks().to_batches()
        chunks = [(batch, live) for batch, live in chunks if live is not None or batch.num_rows > SMALL_ROWS]
        chunks += [(batch, None) for batch in merged]
    if all(live is None for _, live in chunks):
        return pa.Table.from_batches([batch for batch, _ in chunks], schema)
    marked = schema.append(pa.field(LIVE, pa.bool_()))
    batches = [
        pa.RecordBatch.from_arrays(
            [*batch.columns, boolean_array(np.ones(batch.num_rows, dtype=np.bool_) if live is None else live)],
            schema=marked,
        )
        for batch, live in chunks
    ]
    return pa.Table.from_batches(batches, marked)


def _repeated_rows(batch: pa.RecordBatch, counts: Count) -> pa.RecordBatch:
    """The rows that count more than once, with the number of extra copies, split into pieces of at most MOST_COPIES."""
    repeated = np.flatnonzero(counts > 1)
    copies = counts[repeated] - 1
    pieces = -(-copies // MOST_COPIES)
    rows = batch.take(number_array(np.repeat(repeated, pieces)))
    last = np.cumsum(pieces) - 1
    counts_made = np.full(rows.num_rows, MOST_COPIES, dtype=np.int64)
    counts_made[last] = copies - (pieces - 1) * MOST_COPIES
    schema = batch.schema.append(pa.field(COPIES, pa.int64()))
    return pa.RecordBatch.from_arrays([*rows.columns, number_array(counts_made)], schema=schema)


def _copied_rows(batch: pa.RecordBatch, counts: Count) -> Iterator[pa.RecordBatch]:
    """The rows, each as often as it counts, in batches of limited size."""
    live = np.flatnonzero(counts > 0)
    ends = np.cumsum(counts[live])
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, SMALL_ROWS):
        wanted = np.arange(start, min(start + SMALL_ROWS, total))
        yield batch.take(number_array(live[np.searchsorted(ends, wanted, side="right")]))


def boolean_array(values: Mask) -> Column:
    """An Arrow array of booleans. `pa.array` would do, but it imports pandas."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits.data)])


def number_array(values: npt.NDArray[np.int64]) -> Column:
    """An Arrow array of int64, without `pa.array` for the same reason."""
    content = np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(content.data)])
