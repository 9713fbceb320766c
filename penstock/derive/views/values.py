"""Values of Arrow as values of Python: datetime, Decimal, bytes, list, dict. Nothing is rounded, nothing refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.state.rows import Column


def python_values(column: Column) -> list[object]:
    """The values of a column. Maps become dicts; times outside of the years 1 to 9999 become text."""
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError, TypeError, KeyError):
        return [_python_value(scalar) for scalar in column]


def python_row(names: Sequence[str], columns: Sequence[Column], at: int) -> dict[str, object]:
    """One row by the names of its columns: quicker than `python_values` for one."""
    try:
        values = (column[at].as_py(maps_as_pydicts="strict") for column in columns)
        return dict(zip(names, values, strict=True))
    except (ValueError, OverflowError, TypeError, KeyError):
        return {name: _python_value(column[at]) for name, column in zip(names, columns, strict=True)}


def _python_value(scalar: Any) -> object:
    """One value with something in it that Python cannot hold: such a time becomes text, such a map a list of pairs."""
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(type_):
        entries = [(_python_value(entry["key"]), _python_value(entry["value"])) for entry in scalar.values]
        try:
            as_dict = dict(entries)
        except TypeError:
            return entries
        return as_dict if len(as_dict) == len(entries) else entries
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_python_value(item) for item in scalar.values]
    if pa.types.is_struct(type_):
        return {name: _python_value(scalar[name]) for name in scalar}
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return _far_time(scalar)


def _far_time(scalar: Any) -> str:
    """A time outside of the years 1 to 9999. Arrow itself would write the wrong year for those that are very far."""
    if pa.types.is_date32(scalar.type):
        return str(np.datetime64(scalar.value, "D"))
    text = str(np.datetime64(scalar.value, scalar.type.unit)).removesuffix(".000000")
    return f"{text}Z" if scalar.type.tz else text
