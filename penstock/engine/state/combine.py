"""Combining values of the same key: sums, minima and maxima of every type that Spark adds or compares, and bitmaps.

The same values give the same result on every machine and in every retry. As in Spark, nulls are ignored and NaN is
greater than every other number. A sum that does not fit its type is an error; it never wraps around.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.state.rows import Column, filter_rows, gather_rows
from penstock.engine.state.search import Mask
from penstock.errors import RowError

Rule = Literal["sum", "min", "max", "or", "and", "same"]
CombineRows = Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]

# The most digits that an Arrow decimal of 128 bits has. While adding, one more is needed.
MOST_DIGITS = 38


def combine_columns(rule: Rule, older: Column, newer: Column, title: str) -> Column:
    """Combine two columns whose rows have the same keys. `title` is the name that errors use for the column."""
    if rule == "same":
        return newer
    if rule == "sum":
        return _sum(older, newer, title)
    if rule in ("or", "and"):
        return _combine_bits(np.bitwise_or if rule == "or" else np.bitwise_and, older, newer)
    values: Column = pc.if_else(_newer_wins(rule, older, newer), newer, older)
    return values


def _newer_wins(rule: Rule, older: Column, newer: Column) -> Column:
    """Where the newer value replaces the older one."""
    wins = pc.less(newer, older) if rule == "min" else pc.greater(newer, older)
    if pa.types.is_floating(newer.type):
        wins = pc.or_(wins, pc.is_nan(older if rule == "min" else newer))
    return pc.coalesce(wins, pc.is_null(older))


def _sum(older: Column, newer: Column, title: str) -> Column:
    try:
        total = _add_checked(older, newer)
    except pa.ArrowInvalid:
        left, right = _first_overflow(older, newer)
        raise RowError(
            f"{title}: the sum is too large for its type {newer.type}; {left} and {right} were to be added",
            hint="give the sum a wider type, as in sum(CAST(amount AS decimal(38, 2))), or sum doubles",
        ) from None
    if not older.null_count and not newer.null_count:
        return total
    return pc.coalesce(total, older, newer)


def _add_checked(older: Column, newer: Column) -> Column:
    type_ = newer.type
    if not pa.types.is_decimal(type_):
        return pc.add_checked(older, newer)
    if type_.precision == MOST_DIGITS:
        wide = pa.decimal256(MOST_DIGITS, type_.scale)
        older, newer = older.cast(wide), newer.cast(wide)
    return pc.add_checked(older, newer).cast(type_)


def _combine_bits(combine: np.ufunc, older: Column, newer: Column) -> Column:
    """Combine columns of bytes that have the same lengths row by row and no nulls, as Spark's bitmaps do."""
    if not len(newer):
        return newer
    offsets, bits = _value_offsets_and_bytes(newer)
    combined_bits = combine(_value_offsets_and_bytes(older)[1], bits)
    return pa.Array.from_buffers(
        newer.type, len(newer), [None, pa.py_buffer(offsets.data), pa.py_buffer(combined_bits.data)]
    )


def _value_offsets_and_bytes(column: Column) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The bytes of a column, and the offsets in them at which its values begin and end."""
    _, offset_buffer, content = column.buffers()
    assert offset_buffer is not None and content is not None
    offsets = np.frombuffer(memoryview(offset_buffer), dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets - offsets[0], np.frombuffer(memoryview(content), dtype=np.uint8)[offsets[0] : offsets[-1]]


def _first_overflow(older: Column, newer: Column) -> tuple[object, object]:
    for older_value, newer_value in zip(older.to_pylist(), newer.to_pylist(), strict=True):
        if older_value is not None and newer_value is not None and not _fits(older_value, newer_value, newer.type):
            return older_value, newer_value
    raise AssertionError("no sum was too large")


def _fits(left: int | Decimal, right: int | Decimal, type_: pa.DataType) -> bool:
    if isinstance(type_, pa.Decimal128Type):
        exact = Context(prec=2 * MOST_DIGITS)
        return bool(abs(exact.add(left, right)) < exact.power(10, type_.precision - type_.scale))
    bound = 2 ** (type_.bit_width - 1)
    return bool(-bound <= left + right < bound)


def fold_groups(rows: pa.RecordBatch, begins: Mask, combine: CombineRows) -> pa.RecordBatch:
    """Combine each group of neighbouring rows into one row; `begins` marks the first row of each group.

    Rows are combined in pairs until one is left, always in the same order.
    """
    while not begins.all():
        number = np.arange(len(begins)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        right = number % 2 == 1
        left = ~right
        has_partner = np.append(right[1:], False)
        pairs = combine(filter_rows(rows, has_partner), filter_rows(rows, right))
        rows, begins = interleave_rows(has_partner[left], pairs, filter_rows(rows, left & ~has_partner)), begins[left]
    return rows


def interleave_rows(from_first: Mask, first_rows: pa.RecordBatch, second_rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of two batches, interleaved: `from_first` says of each row which batch it comes from."""
    at = np.where(from_first, np.cumsum(from_first) - 1, first_rows.num_rows + np.cumsum(~from_first) - 1)
    return gather_rows([first_rows, second_rows], at)
