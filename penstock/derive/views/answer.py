"""The answer to a query: its columns, its epoch, and its rows as they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.schema.result import Result
from penstock.schema.to_python import python_values

if TYPE_CHECKING:
    from penstock.derive.views.snapshot import Snapshot

Row = tuple[object, ...]


class Batches(Protocol):
    """The rows of an answer, batch by batch."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None:
        """Stop, and release everything. Calling it again does nothing."""


class Answer:
    """The rows of an answer, computed as they are read. They can be read once, and all come from one epoch.

    Values have the Python types of their columns: datetime (in UTC if the column is a `timestamp`), date, Decimal,
    bytes, list, dict. If not all rows are read, close it or use it as a context manager.
    """

    def __init__(self, snapshot: Snapshot, batches: Batches, whole_numbers: frozenset[int]) -> None:
        """`whole_numbers` are the columns of integers that Arrow holds as decimals, because they exceed 64 bits."""
        self.app = snapshot.app
        self.epoch = snapshot.epoch
        self.committed_at: datetime | None = snapshot.committed_at
        self.columns = distinct_names(batches.schema.names)
        self._batches = batches
        self._whole_numbers = whole_numbers
        self._snapshot: Snapshot | None = snapshot  # keeps the views' files mapped

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches."""
        try:
            for batch in self._batches:
                yield batch.rename_columns(list(self.columns))
        finally:
            self.close()

    def __iter__(self) -> Iterator[Row]:
        for batch in self.batches():
            columns = [python_values(column) for column in batch.columns]
            for number in self._whole_numbers:
                columns[number] = [int(value) if isinstance(value, Decimal) else value for value in columns[number]]
            # A batch of no columns still has rows.
            yield from zip(*columns, strict=True) if columns else ((),) * batch.num_rows

    def dicts(self) -> Iterator[dict[str, object]]:
        """The rows as dicts by column name. If two columns have the same name, the second gets a number."""
        return (dict(zip(self.columns, row, strict=True)) for row in self)

    def rows(self) -> Result:
        """All rows: as dicts, Arrow, pandas or Polars."""
        schema = self._batches.schema
        fields = [schema.field(number).with_name(name) for number, name in enumerate(self.columns)]
        table = pa.Table.from_batches(list(self.batches()), pa.schema(fields))
        return Result(table, epoch=self.epoch, whole_numbers=self._whole_numbers)

    def close(self) -> None:
        """Stop reading, and release the snapshot."""
        self._batches.close()
        self._snapshot = None

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names made distinct: a, b, a become a, b, a_2."""
    chosen: list[str] = []
    for name in names:
        number, free = 1, name
        while free in chosen:
            number += 1
            free = f"{name}_{number}"
        chosen.append(free)
    return tuple(chosen)
