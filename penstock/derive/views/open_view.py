"""One view of one commit, open: its rows as an Arrow table that DuckDB scans where it lies, and the row of a key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.derive.views.keys import ViewKey
from penstock.derive.views.runs import Count, NegativeCountError, Opener, OpenPartition, Part
from penstock.engine.ledger.records import StoredView
from penstock.engine.state.columns import GONE
from penstock.engine.state.rows import Column, mask
from penstock.engine.state.run import Run
from penstock.engine.state.search import Mask
from penstock.errors import DamagedError
from penstock.log.schema import parse_schema

REBUILD = "build the views again from the log: penstock run --rebuild; or restore a savepoint: penstock savepoint list"
LIVE = "_penstock_live"
"""A column that says which rows count. No column of a view begins like this."""
COPIES = "_penstock_copies"
"""A column that says how many more of a row there are."""
# Runs up to this size, and those of which little counts, are copied without the rows that do not.
SMALL_ROWS = 16_384
LITTLE = 0.2
# Of a row that is there very often, so many are made at a time.
MOST_COPIES = 2_048


@dataclass(frozen=True, slots=True)
class ViewRows:
    """The rows of a view: those of `table` where LIVE is true, if it has that column, and copies of `repeated`."""

    table: pa.Table
    repeated: pa.Table | None


class OpenView:
    """A view as a commit names it. It never changes: `follow` makes the one of a later commit of it."""

    def __init__(self, name: str, stored: StoredView, partitions: Mapping[int, OpenPartition]) -> None:
        self.name = name
        self.stored = stored
        self.partitions = partitions

    @classmethod
    def of(cls, name: str, stored: StoredView, open_: Opener, before: OpenView | None) -> OpenView:
        """Open what is not open yet. `before` is the view as of another commit, if somebody has that open."""
        known: Mapping[int, OpenPartition] = {}
        if before is not None and before.stored.growth == stored.growth:
            known = before.partitions
        empty = OpenPartition(stored.growth)
        partitions = {number: known.get(number, empty).follow(runs, open_) for number, runs in stored.runs.items()}
        if before is not None and before.stored == stored:
            return before
        return cls(name, stored, partitions)

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns. All of them are nullable here: the runs do not say more."""
        return pa.schema([field.with_nullable(True) for field in parse_schema(self.stored.columns)])

    @cached_property
    def names(self) -> list[str]:
        return list(self.schema.names)

    @cached_property
    def row_count(self) -> int:
        return sum(part.rows for part in self._parts())

    @cached_property
    def rows(self) -> ViewRows:
        chunks, repeated = [], []
        for part in self._parts():
            batch = self._own_columns(part.run)
            chunks.append(_without_hidden(batch, part.live))
            if part.counts is not None:
                repeated.append(_repeated_rows(batch, part.counts))
        return ViewRows(_table(self.schema, chunks), pa.Table.from_batches(repeated) if repeated else None)

    def batches(self, of: Sequence[Run] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, each as often as it counts; those of all runs, or of some of them."""
        for part in self._parts():
            if of is not None and all(part.run is not run for run in of):
                continue
            batch = self._own_columns(part.run)
            if part.counts is not None:
                yield from _copied_rows(batch, part.counts)
            else:
                yield batch if part.live is None else batch.filter(boolean_array(part.live))

    def _parts(self) -> Iterator[Part]:
        for number, partition in self.partitions.items():
            try:
                yield from partition.parts()
            except NegativeCountError:
                raise DamagedError(
                    f"view '{self.name}': in partition {number} more rows were taken away than were there",
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
        """Where the row of a key is."""
        order, id_ = self.key.hashes(values)
        for runs in self._searched:
            for run in runs:
                at = run.position(order, id_)
                if at is None:
                    continue
                if run.is_gone(at) or not self.key.matches(run.columns, at, values):
                    break  # whatever older runs of this partition say
                return FoundRow(run.batch, run.columns, at)
        return None

    @cached_property
    def _searched(self) -> list[list[_SearchedRun]]:
        """For each partition its runs, newest first."""
        return [
            [
                _SearchedRun.of(run, self._own_columns(run))
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
class _SearchedRun:
    """A run to find one row at a time in: as memory, since numpy costs more than the search itself."""

    orders: memoryview
    ids: memoryview
    gone: Mask | None
    batch: pa.RecordBatch
    columns: list[Column]

    @classmethod
    def of(cls, run: Run, batch: pa.RecordBatch) -> _SearchedRun:
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
    """The columns of a schema, from a batch that has more; a column of another type is damage."""
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


def _without_hidden(batch: pa.RecordBatch, live: Mask | None) -> _Chunk:
    """A batch and which of its rows count; of a small one only those, and then None."""
    if live is None or live.all():
        return batch, None
    if batch.num_rows <= SMALL_ROWS or live.mean() < LITTLE:
        return batch.filter(boolean_array(live)), None
    return batch, live


def _table(schema: pa.Schema, chunks: list[_Chunk]) -> pa.Table:
    small = [batch for batch, live in chunks if live is None and batch.num_rows <= SMALL_ROWS]
    if len(small) > 1:
        together = pa.Table.from_batches(small).combine_chunks().to_batches()
        chunks = [(batch, live) for batch, live in chunks if live is not None or batch.num_rows > SMALL_ROWS]
        chunks += [(batch, None) for batch in together]
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
    """The rows that are there more than once, with how many copies to make of each; no more than a few at a time."""
    often = np.flatnonzero(counts > 1)
    copies = counts[often] - 1
    pieces = -(-copies // MOST_COPIES)
    rows = batch.take(number_array(np.repeat(often, pieces)))
    last = np.cumsum(pieces) - 1
    made = np.full(rows.num_rows, MOST_COPIES, dtype=np.int64)
    made[last] = copies - (pieces - 1) * MOST_COPIES
    schema = batch.schema.append(pa.field(COPIES, pa.int64()))
    return pa.RecordBatch.from_arrays([*rows.columns, number_array(made)], schema=schema)


def _copied_rows(batch: pa.RecordBatch, counts: Count) -> Iterator[pa.RecordBatch]:
    """The rows, each as often as it counts, not too many at a time."""
    live = np.flatnonzero(counts > 0)
    ends = np.cumsum(counts[live])
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, SMALL_ROWS):
        wanted = np.arange(start, min(start + SMALL_ROWS, total))
        yield batch.take(number_array(live[np.searchsorted(ends, wanted, side="right")]))


def boolean_array(values: Mask) -> Column:
    """An Arrow array of booleans. `pa.array` would do, but imports pandas for it."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits.data)])


def number_array(values: npt.NDArray[np.int64]) -> Column:
    """An Arrow array of 64-bit numbers, without `pa.array` for the same reason."""
    content = np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(content.data)])
