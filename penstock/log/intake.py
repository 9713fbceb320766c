"""Intake: from what a user gives to the rows of each partition. Whatever can be wrong with rows is found here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.contracts import TopicSettings
from penstock.errors import DeclarationError, RowError
from penstock.log.conversion import SharedConversion
from penstock.log.frame import DELETED_COLUMN, DELETES, HEADER_BYTES
from penstock.log.versions import Keys
from penstock.schema.frames import ArrowStream, frame_to_batch
from penstock.schema.hashing import KeyColumn, hash_keys, partition_of

# Any second seed: it only has to differ from Spark's 42.
SECOND_SEED = 7_046_029_254

Rows = ArrowStream | Iterable[Mapping[str, object]] | Mapping[str, object]
"""Arrow batches and tables, data frames of pandas and Polars, or dicts."""
Marks = Sequence[bool] | pa.BooleanArray | bool
"""For each row whether it deletes its key, or for all of them."""


@dataclass(frozen=True, slots=True)
class Intake:
    """Checks rows against one version of a topic's schema, and sorts them by partition. It stores nothing."""

    topic: str
    schema: pa.Schema
    settings: TopicSettings
    conversion: SharedConversion

    @property
    def where(self) -> str:
        return f"topic '{self.topic}'"

    def batch(self, rows: Rows, *, deletes: bool = False) -> pa.RecordBatch:
        """The rows with the topic's columns. A row that deletes its key needs nothing but the key."""
        schema = self.schema
        if deletes:
            schema = pa.schema([f if f.name in self.settings.key else f.with_nullable(True) for f in schema])
        batch = frame_to_batch(rows, schema, where=self.where)
        return self.conversion.batch(self._list_rows(rows), schema, where=self.where) if batch is None else batch

    def _list_rows(self, rows: object) -> Sequence[Mapping[str, object]]:
        """A list, whatever was given: an iterator can be gone through only once."""
        if isinstance(rows, Mapping):
            self._refuse_columns(rows)
            return [rows]
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            lazy = "call .collect() first; or " if hasattr(rows, "collect") else ""
            raise RowError(
                f"{self.where}: rows are dicts, Arrow or data frames; found {type(rows).__name__}",
                hint=f"{lazy}append a dict, a list of dicts, an Arrow table, or a data frame of pandas or Polars",
            )
        return list(rows)

    def _refuse_columns(self, row: Mapping[str, object]) -> None:
        """Refuse a dict of whole columns, which is a row of lists to us."""
        lists = [name for name, value in row.items() if isinstance(value, list | tuple | np.ndarray)]
        if lists and len(lists) == len(row) and not any(_is_list(self.schema, name) for name in lists):
            raise RowError(
                f"{self.where}: a dict is one row; found a list in each of its columns",
                hint="to append columns, give pyarrow.table(...) or a data frame",
            )

    def checked_rows(self, rows: Rows, deleted: Marks | None) -> tuple[pa.RecordBatch, int]:
        """The rows in stored form, with the flags that tell which hidden columns they have."""
        batch = self.batch(rows, deletes=deleted is not None and deleted is not False)
        if deleted is None or deleted is False:
            self._check_nulls(batch, batch)
            return batch, 0
        marks = pa.array(np.ones(batch.num_rows, dtype=np.bool_)) if deleted is True else self._marks(deleted)
        if not self.settings.key:
            raise RowError(f"{self.where}: rows cannot be deleted; the topic has no key")
        if len(marks) != batch.num_rows:
            raise RowError(f"{self.where}: {len(marks)} delete marks were given for {batch.num_rows} rows")
        self._check_nulls(batch, batch.filter(pc.invert(marks)))
        if not pc.any(marks).as_py():
            return batch, 0
        return batch.append_column(DELETED_COLUMN, marks), DELETES

    def _marks(self, deleted: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        try:
            return pa.array(deleted, type=pa.bool_())
        except (pa.ArrowException, TypeError):
            raise RowError(
                f"{self.where}: 'deleted' tells for each row whether it deletes its key; found {deleted!r}",
                hint="give a list of True and False",
            ) from None

    def _check_nulls(self, batch: pa.RecordBatch, alive: pa.RecordBatch) -> None:
        for name in self.settings.key:
            _refuse_null(batch, name, f"{self.where}: the key column '{name}' is null")
        if self.settings.time is not None:
            _refuse_null(alive, self.settings.time, f"{self.where}: the event time '{self.settings.time}' is null")

    def only_key(self, batch: pa.RecordBatch, expect: int) -> str:
        """The one key of a conditional append, for messages."""
        if not self.settings.versioned:
            raise DeclarationError(
                f"{self.where}: its keys have no versions, so an append cannot depend on one",
                hint="create the topic with versioned=True",
            )
        if expect < 0 or batch.num_rows == 0:
            raise RowError(f"{self.where}: a conditional append needs rows and an expected version of 0 or more")
        columns = self.key_columns(batch)
        if any(pc.count_distinct(column).as_py() != 1 for column in columns):
            raise RowError(f"{self.where}: a conditional append is for the events of one key; found several")
        values = [str(column[0].as_py()) for column in columns]
        return f"'{values[0]}'" if len(values) == 1 else f"({', '.join(values)})"

    def split(self, batch: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        """The rows of each partition by their key, in their order."""
        count = self.settings.partitions
        if count == 1:
            return {0: batch}
        numbers = self.partition_numbers(batch)
        if batch.num_rows == 1:
            return {int(numbers[0]): batch}
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(count + 1))
        ordered = batch.take(order)
        return {
            number: ordered.slice(int(bounds[number]), int(bounds[number + 1] - bounds[number]))
            for number in range(count)
            if bounds[number] < bounds[number + 1]
        }

    def partition_numbers(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint16]:
        """The partition of each row, by its key."""
        return partition_of(hash_keys(self.key_columns(batch)), self.settings.partitions)

    def check_size(self, part: pa.RecordBatch) -> None:
        """Refuse what does not fit into one frame. Whole buffers are quicker to count than rows, and never too few."""
        limit = self.settings.max_batch_bytes
        if HEADER_BYTES + part.get_total_buffer_size() <= limit:
            return
        size = HEADER_BYTES + part.nbytes
        if size > limit:
            raise RowError(
                f"{self.where}: a batch of {part.num_rows} rows has {size} bytes for one partition; "
                f"{limit} are allowed",
                hint=f"append at most about {max(1, part.num_rows * limit // size)} such rows at a time",
            )

    def pieces(self, batch: pa.RecordBatch, most_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in as few pieces as needed, so that each fits into one frame; single rows as they are.

        `most_bytes` allows less than what fits into one frame.
        """
        limit = min(most_bytes or self.settings.max_batch_bytes, self.settings.max_batch_bytes)
        size = HEADER_BYTES + batch.get_total_buffer_size()
        if size > limit:  # of a slice, that counts too many
            size = HEADER_BYTES + batch.nbytes
        if size <= limit or batch.num_rows < 2:
            yield batch
            return
        half = batch.num_rows // 2
        yield from self.pieces(batch.slice(0, half), most_bytes)
        yield from self.pieces(batch.slice(half), most_bytes)

    def key_columns(self, batch: pa.RecordBatch) -> list[KeyColumn]:
        return [batch.column(name) for name in self.settings.key]

    def keys_of(self, batch: pa.RecordBatch) -> Keys:
        """The keys of stored rows, told apart by two hashes."""
        columns = self.key_columns(batch)
        first, second = hash_keys(columns), hash_keys(columns, seed=SECOND_SEED)
        return Keys(first.view(np.uint64), second.view(np.uint64))


def _is_list(schema: pa.Schema, name: str) -> bool:
    return name in schema.names and pa.types.is_nested(schema.field(name).type)


def _refuse_null(batch: pa.RecordBatch, name: str, problem: str) -> None:
    column = batch.column(name)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise RowError(f"{problem} in row {row}", hint="give every row a value for it")
