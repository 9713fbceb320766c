"""Arrow values as Python values: datetime, Decimal, bytes, list, dict. Nothing is rounded or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

Column: TypeAlias = "pa.Array[Any]"
Maps: TypeAlias = Literal["strict", "lossy"]
"""How a map that has a key twice is converted: to a list of pairs, or to a dict with the last value of the key."""

# What `as_py` raises for a value that Python cannot hold.
_UNFIT = (ValueError, OverflowError, TypeError, KeyError)


def python_values(column: Column, *, maps: Maps = "strict") -> list[object]:
    """The values of a column. Maps become dicts; times outside the years 1 to 9999 become text."""
    try:
        return list(column.to_pylist(maps_as_pydicts=maps))
    except _UNFIT:
        return [_python_value(scalar, maps) for scalar in column]


def python_row(names: Sequence[str], columns: Sequence[Column], at: int) -> dict[str, object]:
    """One row as a dict by column name. For a single row this is faster than `python_values`."""
    try:
        values = (column[at].as_py(maps_as_pydicts="strict") for column in columns)
        return dict(zip(names, values, strict=True))
    except _UNFIT:
        return {name: _python_value(column[at], "strict") for name, column in zip(names, columns, strict=True)}


def far_time(count: int, unit: Literal["us", "D"]) -> str:
    """A time outside the years 1 to 9999, which Python cannot hold, as text. `count` is the units since 1970.

    Arrow itself writes the wrong year for times that are very far away.
    """
    return str(np.datetime64(count, unit)).removesuffix(".000000")


def _python_value(scalar: Any, maps: Maps) -> object:
    """Convert a value that may contain something Python cannot hold: such a time becomes text, such a map a list of
    pairs."""
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(type_):
        return _python_map(scalar, maps)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_python_value(item, maps) for item in scalar.values]
    if pa.types.is_struct(type_):
        return {name: _python_value(scalar[name], maps) for name in scalar}
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        if pa.types.is_date32(type_):
            return far_time(scalar.value, "D")
        text = far_time(scalar.value, type_.unit)
        return f"{text}Z" if type_.tz else text


def _python_map(scalar: Any, maps: Maps) -> object:
    entries = [(_python_value(entry["key"], maps), _python_value(entry["value"], maps)) for entry in scalar.values]
    try:
        as_dict = dict(entries)
    except TypeError:  # keys that are lists or structs
        return entries
    return as_dict if maps == "lossy" or len(as_dict) == len(entries) else entries
