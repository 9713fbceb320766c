"""Keys of rows as texts that differ exactly if the keys do: to find the rows of a batch among others. No I/O."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.types import TableLayout


def key_texts(batch: pa.RecordBatch, layout: TableLayout) -> pa.Array[Any]:
    """One text for each row. With several columns, each but the last is preceded by its length."""
    columns: list[Any] = [_text(batch.column(name)) for name in layout.key]
    if len(columns) == 1:
        (only,) = columns
        text: pa.Array[Any] = only
        return text
    parts: list[Any] = []
    for column in columns[:-1]:
        parts += [pc.cast(pc.binary_length(column), pa.string()), column]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*parts, columns[-1], ":")
    return joined


def contains(keys: pa.Array[Any], texts: pa.Array[Any]) -> pa.BooleanArray:
    """Which of the texts are among the keys."""
    mask: pa.BooleanArray = pc.is_in(texts, value_set=keys)
    return mask


def _text(column: Any) -> Any:
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return pc.cast(column, pa.string())
