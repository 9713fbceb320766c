"""How values of one key become one: sums, least and greatest values of every type that Spark can add or compare, bits.

The same values give the same result on every machine and in every retry. Nulls are left out, as Spark does; NaN is
greater than every other number, as in Spark; a sum that does not fit its type is an error and never wraps around.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.state.rows import Column, gathered, picked
from penstock.engine.state.search import Mask
from penstock.errors import RowError

Rule = Literal["sum", "min", "max", "or", "and", "same"]
Together = Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]

# The most digits of an Arrow decimal with 128 bits; adding needs one more for a moment.
MOST_DIGITS = 38


def together(rule: Rule, older: Column, newer: Column, title: str) -> Column:
    """Two columns, row by row of one key, as one. `title` is what a user would call it."""
    if rule == "same":
        return newer
    if rule == "sum":
        return _sum(older, newer, title)
    if rule in ("or", "and"):
        return _bits(np.bitwise_or if rule == "or" else np.bitwise_and, older, newer)
    chosen: Column = pc.if_else(_wins(rule, older, newer), newer, older)
    return chosen


def _wins(rule: Rule, older: Column, newer: Column) -> Column:
    """Where the newer value takes the place of the older one."""
    wins = pc.less(newer, older) if rule == "min" else pc.greater(newer, older)
    if pa.types.is_floating(newer.type):
        wins = pc.or_(wins, pc.is_nan(older if rule == "min" else newer))
    return pc.coalesce(wins, pc.is_null(older))


def _sum(older: Column, newer: Column, title: str) -> Column:
    try:
        total = _added(older, newer)
    except pa.ArrowInvalid:
        one, other = _first_overflow(older, newer)
        raise RowError(
            f"{title}: the sum is too large for its type {newer.type}; {one} and {other} were to be added",
            hint="give the sum a wider type, as in sum(CAST(amount AS decimal(38, 2))), or sum doubles",
        ) from None
    if not older.null_count and not newer.null_count:
        return total
    return pc.coalesce(total, older, newer)


def _added(older: Column, newer: Column) -> Column:
    type_ = newer.type
    if not pa.types.is_decimal(type_):
        return pc.add_checked(older, newer)
    if type_.precision == MOST_DIGITS:
        wide = pa.decimal256(MOST_DIGITS, type_.scale)
        older, newer = older.cast(wide), newer.cast(wide)
    return pc.add_checked(older, newer).cast(type_)


def _bits(both: np.ufunc, older: Column, newer: Column) -> Column:
    """Columns of bytes, as long in the one as in the other, and never null: as Spark's bitmaps are."""
    if not len(newer):
        return newer
    offsets, bits = _bytes(newer)
    joined = both(_bytes(older)[1], bits)
    return pa.Array.from_buffers(newer.type, len(newer), [None, pa.py_buffer(offsets.data), pa.py_buffer(joined.data)])


def _bytes(column: Column) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Where in the bytes of a column its values begin and end, and the bytes."""
    _, places, content = column.buffers()
    assert places is not None and content is not None
    offsets = np.frombuffer(memoryview(places), dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets - offsets[0], np.frombuffer(memoryview(content), dtype=np.uint8)[offsets[0] : offsets[-1]]


def _first_overflow(older: Column, newer: Column) -> tuple[object, object]:
    for one, other in zip(older.to_pylist(), newer.to_pylist(), strict=True):
        if one is not None and other is not None and not _fits(one, other, newer.type):
            return one, other
    raise AssertionError("no sum was too large")


def _fits(one: int | Decimal, other: int | Decimal, type_: pa.DataType) -> bool:
    if isinstance(type_, pa.Decimal128Type):
        exactly = Context(prec=2 * MOST_DIGITS)
        return bool(abs(exactly.add(one, other)) < exactly.power(10, type_.precision - type_.scale))
    most = 2 ** (type_.bit_width - 1)
    return bool(-most <= one + other < most)


def folded(rows: pa.RecordBatch, begins: Mask, both: Together) -> pa.RecordBatch:
    """One row for each stretch of rows, of which `begins` marks the first: neighbours are joined until one is left."""
    while not begins.all():
        number = np.arange(len(begins)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        right = number % 2 == 1
        left = ~right
        paired = np.append(right[1:], False)
        joined = both(picked(rows, paired), picked(rows, right))
        rows, begins = rejoined(paired[left], joined, picked(rows, left & ~paired)), begins[left]
    return rows


def rejoined(first: Mask, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of two batches in one order: the next of `one` where `first` says so, else the next of `other`."""
    at = np.where(first, np.cumsum(first) - 1, one.num_rows + np.cumsum(~first) - 1)
    return gathered([one, other], at)
