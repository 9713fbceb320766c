"""What each key of an epoch comes down to, a delete or a replacement, sorted by key: pure functions on columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.derive.sqlite.columns import Array, Numbers, convert_distinct, ranks_of, values_of
from penstock.derive.sqlite.nested_json import json_texts
from penstock.derive.sqlite.parameters import unscaled_words


def last_per_key(keys: Sequence[Array], weights: Numbers) -> tuple[Numbers, Numbers]:
    """The rows whose keys are deleted, and the rows that replace what their key had; both sorted by key.

    A key with a row of positive weight is replaced (by the last such row) and need not be deleted first.
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
    has_row = last_added >= 0
    return order[starts[~has_row]], order[last_added[has_row]]


def order_codes(column: Array) -> Numbers:
    """A number for each value: equal for equal values including nulls, and ordered as SQLite sorts the values."""
    numbers = _plain_numbers(column)
    if numbers is not None:
        return numbers
    return convert_distinct(_sortable(column), ranks_of, null=-1)


def _plain_numbers(column: Array) -> Numbers | None:
    """The values themselves, if they are whole numbers without nulls."""
    type_ = column.type
    if column.null_count:
        return None
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_timestamp(type_):
        return values_of(column.cast(pa.int64()))
    if pa.types.is_date(type_):
        return values_of(column.cast(pa.int32())).astype(np.int64)
    if pa.types.is_decimal(type_):
        low, high = unscaled_words(column)
        return low if (high == (low >> 63)).all() else None
    return None


def _sortable(column: Array) -> Array:
    """The values as a type that Arrow can sort and compare."""
    if pa.types.is_nested(column.type):
        return pa.array(json_texts(column), pa.string())
    if pa.types.is_floating(column.type):
        return pc.add(column.cast(pa.float64()), 0.0)  # -0.0 is the same key as 0.0
    return column
