"""Rows of SQLite as Arrow batches: changes as the triggers have stored them, and rows of the tables themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.capture.sqlite.schema import Column, TableSchema, arrow_schema, captured_columns, quoted
from penstock.capture.sqlite.triggers import DELETED, INSERTED
from penstock.capture.sqlite.types import MisfitError, to_column
from penstock.contracts import Captured, SourceTable
from penstock.errors import DeclarationError

StoredRow: TypeAlias = "tuple[Any, ...]"

CHANGE_FIELDS = 4
"""How many fields a change has before its values: id, layout, op, at."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """What is captured of a table in one of its layouts."""

    table: TableSchema
    wanted: SourceTable
    columns: tuple[Column, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, table: TableSchema, wanted: SourceTable, dropped: frozenset[str]) -> RowShape:
        columns = tuple(captured_columns(table, wanted, dropped))
        return cls(table, wanted, columns, arrow_schema(table, columns, wanted))

    @property
    def selection(self) -> str:
        """The captured columns in SQL."""
        return ", ".join(quoted(column.name) for column in self.columns)

    def key_of(self, row: StoredRow) -> StoredRow:
        """The key of a row that was selected."""
        names = [column.name for column in self.columns]
        return tuple(row[names.index(name)] for name in self.table.key)

    def to_batch(self, rows: Sequence[StoredRow]) -> pa.RecordBatch:
        """Rows of the table, as `selection` gives them."""
        return self._to_batch(list(zip(*rows, strict=True)), np.zeros(len(rows), np.int64))

    def to_item(self, rows: Sequence[StoredRow]) -> Captured | None:
        """Changes of the table. None if none of them is wanted."""
        if self.wanted.inserts_only:
            rows = [row for row in rows if row[2] == INSERTED]
        if not rows:
            return None
        fields = list(zip(*rows, strict=True))
        values = [fields[CHANGE_FIELDS + self.table.names.index(column.name)] for column in self.columns]
        batch = self._to_batch(values, np.array(fields[3], np.int64))
        is_deleted = np.array(fields[2]) == DELETED
        return Captured(self.table.name, batch, pa.array(is_deleted) if is_deleted.any() else None)

    def _to_batch(self, values: Sequence[Sequence[Any]], milliseconds: np.ndarray[Any, Any]) -> pa.RecordBatch:
        times = pa.array(milliseconds * 1000).cast(pa.timestamp("us", "UTC"))
        columns = [self._to_column(column, found) for column, found in zip(self.columns, values, strict=True)]
        return pa.RecordBatch.from_arrays([*columns, times], schema=self.schema)

    def _to_column(self, column: Column, values: Sequence[Any]) -> pa.Array[Any]:
        where = f"table '{self.table.name}': column '{column.name}'"
        type_ = self.schema.field(column.name).type
        try:
            array = to_column(values, type_, as_text=column.name in self.wanted.as_text)
        except MisfitError as misfit:
            raise DeclarationError(
                f"{where} has the type {type_}; found {misfit}",
                hint=f"capture it as text (as_text: '{column.name}'), or correct the value and copy the table again",
            ) from None
        if array.null_count and column.name in self.table.key:
            raise DeclarationError(
                f"{where} belongs to the key; found null",
                hint=f"give that row a key or delete it, and copy the table again: UPDATE {quoted(self.table.name)} "
                f"SET {quoted(column.name)} = ... WHERE {quoted(column.name)} IS NULL",
            )
        return array
