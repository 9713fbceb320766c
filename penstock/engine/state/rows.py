"""Batches of rows: taking, filtering and concatenating them, without needless copies, for columns of every type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.state.search import Hashes, Mask, Positions

Numbers = npt.NDArray[np.int64]
Column: TypeAlias = "pa.Array[Any]"


def null_rows(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def take_rows(batch: pa.RecordBatch, at: Positions) -> pa.RecordBatch:
    """The rows at these positions."""
    return batch.take(at)


def filter_rows(batch: pa.RecordBatch, keep: Mask) -> pa.RecordBatch:
    """The rows where `keep` is set."""
    if keep.all():
        return batch
    return batch.filter(pa.array(keep)) if keep.any() else batch.slice(0, 0)


def concat_rows(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of all batches, one after the other."""
    nonempty = [batch for batch in batches if batch.num_rows]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else null_rows(schema, 0)
    rows: pa.RecordBatch = pa.concat_batches(nonempty)  # type: ignore[attr-defined]  # missing from the stubs
    return rows


def gather_rows(batches: Sequence[pa.RecordBatch], at: Positions) -> pa.RecordBatch:
    """The rows at these positions of the concatenated batches. Concatenates one column at a time, to save memory."""
    nonempty = [batch for batch in batches if batch.num_rows]
    if len(nonempty) < 2:
        return take_rows(nonempty[0] if nonempty else batches[0], at)
    indices = pa.array(at)
    columns = [
        pa.concat_arrays(parts).take(indices) for parts in zip(*(batch.columns for batch in nonempty), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=nonempty[0].schema.names)


def integers(batch: pa.RecordBatch, name: str) -> Numbers:
    """A column of whole numbers without nulls, without a copy."""
    column = batch.column(name)
    content = column.buffers()[1]
    if column.null_count or content is None or column.type != pa.int64():
        numbers: Numbers = column.to_numpy(zero_copy_only=True)
        return numbers
    # Arrow's own conversion imports pandas, which would take most of the time of a small query.
    return np.frombuffer(memoryview(content), dtype=np.int64, count=len(column), offset=8 * column.offset)


def hashes(batch: pa.RecordBatch, name: str) -> Hashes:
    """A column of 64-bit hashes, unsigned as they are compared, without a copy."""
    return integers(batch, name).view(np.uint64)


def mask(column: pa.Array[pa.BooleanScalar]) -> Mask:
    """A column of booleans as an array; null is false."""
    content = column.buffers()[1]
    if column.null_count or content is None:
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    first, first_bit = divmod(column.offset, 8)
    size = -(-(first_bit + len(column)) // 8)
    bytes_ = np.frombuffer(memoryview(content), dtype=np.uint8, count=size, offset=first)
    return np.unpackbits(bytes_, bitorder="little")[first_bit : first_bit + len(column)].view(np.bool_)


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, npt.NDArray[Any] | Column]) -> pa.RecordBatch:
    """The batch with these columns; they replace columns of the same names."""
    arrays: dict[str, Column] = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, values in columns.items():
        arrays[name] = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def without_columns(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in names])
