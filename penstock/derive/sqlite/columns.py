"""Arrow columns as NumPy arrays, with a word on their nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# The values of a column have whatever type the column has.
Array: TypeAlias = "pa.Array[Any]"
Values: TypeAlias = "npt.NDArray[Any]"
Numbers: TypeAlias = npt.NDArray[np.int64]


def values_of(array: Array) -> Values:
    return array.to_numpy(zero_copy_only=False)


def numbers_of(array: Array) -> Values:
    """The numbers of a column, 0 in the place of nulls."""
    return values_of(array.fill_null(0) if array.null_count else array)


def nulls_of(array: Array) -> npt.NDArray[np.bool_]:
    """Where the nulls are."""
    return values_of(array.is_null())


def each_once(array: Array, convert: Callable[[Array], Values], *, null: object) -> Values:
    """Convert each different value once, however often it occurs; nulls become `null`."""
    encoded: Any = array.dictionary_encode()
    converted = convert(encoded.dictionary)
    if array.null_count == 0:
        return converted[values_of(encoded.indices)] if len(array) else converted
    known = np.append(converted, np.array([null], converted.dtype))
    return known[values_of(encoded.indices.fill_null(len(converted)))]


def ranks_of(array: Array) -> Values:
    """The place of each value in the order of all, for values that differ."""
    ranks = np.empty(len(array), np.int64)
    ranks[values_of(pc.sort_indices(array))] = np.arange(len(array))
    return ranks
