"""Batches of rows: taking, choosing and stacking them without copies that are not needed, for columns of every type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.state.search import Hashes, Mask, Positions

Numbers = npt.NDArray[np.int64]
Column: TypeAlias = "pa.Array[Any]"


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def taken(batch: pa.RecordBatch, at: Positions) -> pa.RecordBatch:
    """The rows at these positions."""
    return batch.take(at)


def picked(batch: pa.RecordBatch, wanted: Mask) -> pa.RecordBatch:
    """The rows that are wanted."""
    if wanted.all():
        return batch
    return batch.filter(pa.array(wanted)) if wanted.any() else batch.slice(0, 0)


def stacked(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of all batches, one after the other."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else nulls(schema, 0)
    whole: pa.RecordBatch = pa.concat_batches(filled)  # type: ignore[attr-defined]  # missing from the stubs
    return whole


def gathered(batches: Sequence[pa.RecordBatch], at: Positions) -> pa.RecordBatch:
    """The rows at these positions of all batches, one after the other: stacked and taken, a column at a time."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return taken(filled[0] if filled else batches[0], at)
    places = pa.array(at)
    columns = [pa.concat_arrays(parts).take(places) for parts in zip(*(batch.columns for batch in filled), strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=filled[0].schema.names)


def integers(batch: pa.RecordBatch, name: str) -> Numbers:
    """A column of whole numbers without nulls, without a copy."""
    column = batch.column(name)
    content = column.buffers()[1]
    if column.null_count or content is None or column.type != pa.int64():
        numbers: Numbers = column.to_numpy(zero_copy_only=True)
        return numbers
    # Arrow's own way imports pandas, which would be most of the time that a small question takes.
    return np.frombuffer(memoryview(content), dtype=np.int64, count=len(column), offset=8 * column.offset)


def hashes(batch: pa.RecordBatch, name: str) -> Hashes:
    """A column of 64-bit hashes as they are compared, without a copy."""
    return integers(batch, name).view(np.uint64)


def mask(column: pa.Array[pa.BooleanScalar]) -> Mask:
    """A column of booleans as an array; null is false."""
    content = column.buffers()[1]
    if column.null_count or content is None:
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    first, skipped = divmod(column.offset, 8)
    size = -(-(skipped + len(column)) // 8)
    packed = np.frombuffer(memoryview(content), dtype=np.uint8, count=size, offset=first)
    return np.unpackbits(packed, bitorder="little")[skipped : skipped + len(column)].view(np.bool_)


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, npt.NDArray[Any] | Column]) -> pa.RecordBatch:
    """The batch with these columns added, or put in place of those with their names."""
    arrays: dict[str, Column] = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, values in columns.items():
        arrays[name] = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def without_columns(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in names])
