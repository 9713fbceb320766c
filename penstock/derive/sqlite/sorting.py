"""What is left to do for each key after an epoch, and in which order: pure functions on columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.derive.sqlite.columns import Array, Numbers, each_once, ranks_of, values_of
from penstock.derive.sqlite.nested import json_texts
from penstock.derive.sqlite.values import unscaled


def last_per_key(keys: Sequence[Array], weights: Numbers) -> tuple[Numbers, Numbers]:
    """Which rows say which keys to delete, and which rows to put in their places; both sorted by key.

    A key that has a row with a positive weight is replaced (by the last such row) and need not be deleted before.
    """
    codes = [order_codes(key) for key in keys]
    order = np.lexsort(codes[::-1]) if len(codes) > 1 else np.argsort(codes[0], kind="stable")
    new_key = np.zeros(len(order), np.bool_)
    new_key[:1] = True
    for code in codes:
        ordered = code[order]
        new_key[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new_key)
    added = np.where(weights[order] > 0, np.arange(len(order)), -1)
    last_added = np.maximum.reduceat(added, starts)
    kept = last_added >= 0
    return order[starts[~kept]], order[last_added[kept]]


def order_codes(column: Array) -> Numbers:
    """A number for each value: equal for equal values, nulls included, and in the order in which SQLite sorts them."""
    numbers = _plain_numbers(column)
    if numbers is not None:
        return numbers
    return each_once(_comparable(column), ranks_of, null=-1)


def _plain_numbers(column: Array) -> Numbers | None:
    """The values themselves, where they are whole numbers without nulls."""
    type_ = column.type
    if column.null_count:
        return None
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_timestamp(type_):
        return values_of(column.cast(pa.int64()))
    if pa.types.is_date(type_):
        return values_of(column.cast(pa.int32())).astype(np.int64)
    if pa.types.is_decimal(type_):
        low, high = unscaled(column)
        return low if (high == (low >> 63)).all() else None
    return None


def _comparable(column: Array) -> Array:
    """The values as something Arrow can sort and tell apart."""
    if pa.types.is_nested(column.type):
        return pa.array(json_texts(column), pa.string())
    if pa.types.is_floating(column.type):
        return pc.add(column.cast(pa.float64()), 0.0)  # -0.0 is the same key as 0.0
    return column
