"""Messages of other tools about the changes of a table, as rows of this table with marks where they delete their key.

The journey of a message: read_debezium or read_maxwell (what changed) -> value_reader (values of declared types) ->
reader_of (do they fit?). A message that fails anywhere has a reason instead of rows, and nothing of it is taken.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.messages.change import MessageError, RowChange
from penstock.engine.messages.debezium import read_debezium
from penstock.engine.messages.maxwell import read_maxwell
from penstock.engine.messages.values import ReadValue, value_reader
from penstock.flow.plan import Messages
from penstock.schema.from_python import MisfitError, Reader, reader_of


@dataclass(frozen=True, slots=True, eq=False)
class DecodedChanges:
    """Rows in the order of their messages, whose numbers are in `message`. Reasons are by these numbers."""

    rows: pa.RecordBatch
    gone: npt.NDArray[np.bool_]
    message: npt.NDArray[np.int64]
    reasons: dict[int, str]


def decode_changes(
    keys: Sequence[str | None], values: Sequence[str | None], schema: pa.Schema, key: Sequence[str], messages: Messages
) -> DecodedChanges:
    """The rows of some messages, with the columns of the schema. A row that deletes its key has nulls beside it.

    A value of None is a tombstone. Never raises for what is in a message.
    """
    decoder = _Decoder(schema, key, _format_reader(schema, key, messages), messages)
    for number, (message_key, value) in enumerate(zip(keys, values, strict=True)):
        decoder.add(number, message_key, value)
    return decoder.result()


_ReadMessage = Callable[[str | None, str | None], list[RowChange]]


def _format_reader(schema: pa.Schema, key: Sequence[str], messages: Messages) -> _ReadMessage:
    columns = list(schema.names)
    if messages.format == "maxwell":
        return lambda message_key, value: read_maxwell(message_key, value, columns, key, messages.table)
    return lambda message_key, value: read_debezium(message_key, value, columns, key)


@dataclass(slots=True)
class _Decoder:
    schema: pa.Schema
    key: Sequence[str]
    read: _ReadMessage
    messages: Messages
    _columns: list[list[object]] = field(default_factory=list)
    _readers: list[tuple[str, ReadValue, Reader, bool]] = field(default_factory=list)
    _gone: list[bool] = field(default_factory=list)
    _message: list[int] = field(default_factory=list)
    _reasons: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns = [[] for _ in self.schema]
        for column in self.schema:
            read_value = value_reader(column.type, self.messages.time_unit)
            required = not column.nullable or column.name in self.key
            self._readers.append((column.name, read_value, reader_of(column.type, column.name), required))

    def add(self, number: int, key: str | None, value: str | None) -> None:
        try:
            rows = [(self._row(change), change.is_delete) for change in self.read(key, value)]
        except MessageError as error:
            self._reasons[number] = str(error).encode("utf-8", "backslashreplace").decode()
            return
        for row, is_delete in rows:
            for column, item in zip(self._columns, row, strict=True):
                column.append(item)
            self._gone.append(is_delete)
            self._message.append(number)

    def result(self) -> DecodedChanges:
        fields = [column.with_nullable(True) for column in self.schema]
        arrays = [pa.array(values, column.type) for values, column in zip(self._columns, fields, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        return DecodedChanges(rows, np.array(self._gone, np.bool_), np.array(self._message, np.int64), self._reasons)

    def _row(self, change: RowChange) -> list[object]:
        return [self._value(change, *reader) for reader in self._readers]

    def _value(self, change: RowChange, name: str, read_value: ReadValue, check: Reader, required: bool) -> object:
        if change.is_delete and name not in self.key:
            return None
        value = change.values.get(name)
        try:
            value = check(read_value(value, change.types.get(name)))
        except MisfitError as error:
            raise MessageError(f"{error}: {error.hint}") from None
        except (ValueError, ArithmeticError, TypeError, RecursionError) as error:
            raise MessageError(f"column '{name}': {error}; found {reprlib.repr(value)}") from None
        if value is None and required:
            found = "is null" if name in change.values else "is missing"
            raise MessageError(f"column '{name}' {found}, and must not be")
        return value
