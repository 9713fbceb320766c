"""Arrow columns as NumPy arrays, and where their nulls are."""

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
    """The numbers of a column, with 0 for nulls."""
    return values_of(array.fill_null(0) if array.null_count else array)


def null_mask(array: Array) -> npt.NDArray[np.bool_]:
    """True where the column is null."""
    return values_of(array.is_null())


def convert_distinct(array: Array, convert: Callable[[Array], Values], *, null: object) -> Values:
    """Convert each distinct value once, however often it occurs. Nulls become `null`."""
    encoded: Any = array.dictionary_encode()
    converted = convert(encoded.dictionary)
    if array.null_count == 0:
        return converted[values_of(encoded.indices)] if len(array) else converted
    with_null = np.append(converted, np.array([null], converted.dtype))
    return with_null[values_of(encoded.indices.fill_null(len(converted)))]


def ranks_of(array: Array) -> Values:
    """The rank of each value among all values, which must be distinct."""
    ranks = np.empty(len(array), np.int64)
    ranks[values_of(pc.sort_indices(array))] = np.arange(len(array))
    return ranks
