"""Arrays, structs and maps as JSON text, which SQLite's JSON functions read.

Values are converted column by column down to the leaves; only the lists and objects are assembled row by row.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.derive.sqlite.columns import Array, Values, numbers_of
from penstock.derive.sqlite.texts import date_texts, decimal_texts, timestamp_texts


def json_texts(array: Array) -> Values:
    """The text of each row; None for a null."""
    return np.array([None if value is None else _json_text(value) for value in _json_values(array)], dtype=object)


def _json_text(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _json_values(array: Array) -> list[object]:
    """Each value as JSON represents it: times, dates and decimals as text, binary as base64."""
    type_ = array.type
    if pa.types.is_map(type_):
        return _maps(array)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(array)
    if isinstance(array, pa.StructArray):
        return _structs(array)
    if pa.types.is_timestamp(type_):
        return list(timestamp_texts(array))
    if pa.types.is_date(type_):
        return list(date_texts(array))
    if pa.types.is_decimal(type_):
        return list(decimal_texts(array))
    if pa.types.is_floating(type_):
        return [_float(value) for value in array.to_pylist()]
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
    return array.to_pylist()


def _float(value: float | None) -> object:
    if value is None:
        return None
    if math.isfinite(value):
        return value + 0.0  # -0.0 becomes 0.0, as in keys
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _lists(array: Array) -> list[object]:
    items = _json_values(cast("pa.ListArray[Any]", array).flatten())
    lengths = numbers_of(pc.list_value_length(array))
    ends = np.cumsum(lengths)
    present = array.is_valid().to_pylist()
    spans = zip((ends - lengths).tolist(), ends.tolist(), present, strict=True)
    return [items[start:end] if is_valid else None for start, end, is_valid in spans]


def _maps(array: Array) -> list[object]:
    type_ = cast("pa.MapType[pa.DataType, pa.DataType]", array.type)
    pairs = pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))
    rows = cast(list[list[dict[str, object]] | None], _lists(array.cast(pairs)))
    return [None if row is None else {_member_name(entry["key"]): entry["value"] for entry in row} for row in rows]


def _member_name(key: object) -> str:
    return key if isinstance(key, str) else _json_text(key)


def _structs(array: pa.StructArray) -> list[object]:
    names = [field.name for field in array.type]
    columns = [_json_values(column) for column in array.flatten()]
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    present = array.is_valid().to_pylist()
    return [
        dict(zip(names, values, strict=True)) if is_valid else None
        for values, is_valid in zip(rows, present, strict=True)
    ]
