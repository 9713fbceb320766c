"""Times, dates and decimals as text, a column at a time.

The text of a time is that of Python's `str(datetime)`: 2026-01-31 12:00:00, with six more digits for a fraction of a
second. From the year 0 to 9999, texts sort as the times do, and SQLite's date functions read them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.derive.sqlite.columns import Array, Values, convert_distinct, values_of

# The years 0 and 10000 in seconds since 1970: Arrow formats times between them.
_FIRST_SECOND, _SECOND_AFTER = -62_167_219_200, 253_402_300_800
_MICROSECONDS = 1_000_000
_DAY = 86_400


def timestamp_texts(array: Array) -> Values:
    """Times in UTC, or unchanged if they have no zone. Most columns have few distinct times, such as window starts."""
    return convert_distinct(array.cast(pa.int64()), _format_timestamps, null=None)


def date_texts(array: Array) -> Values:
    return convert_distinct(array.cast(pa.int32()), _format_dates, null=None)


def decimal_texts(array: Array) -> Values:
    """All digits, without an exponent."""
    return np.array([None if value is None else format(value, "f") for value in array.to_pylist()], dtype=object)


def _format_timestamps(numbers: Array) -> Values:
    if _in_range(numbers, _FIRST_SECOND * _MICROSECONDS, _SECOND_AFTER * _MICROSECONDS):
        texts = numbers.cast(pa.timestamp("us")).cast(pa.string())
    else:
        texts = _format_far_times(numbers, "us")
    return values_of(pc.replace_substring(texts, ".000000", ""))


def _format_dates(numbers: Array) -> Values:
    if _in_range(numbers, _FIRST_SECOND // _DAY, _SECOND_AFTER // _DAY):
        return values_of(numbers.cast(pa.date32()).cast(pa.string()))
    return values_of(_format_far_times(numbers, "D"))


def _in_range(numbers: Array, start: int, until: int) -> bool:
    counts = values_of(numbers)
    return len(counts) == 0 or bool(counts.min() >= start and counts.max() < until)


def _format_far_times(numbers: Array, unit: str) -> Array:
    """NumPy formats times of every year."""
    texts = np.datetime_as_string(values_of(numbers).astype(f"datetime64[{unit}]"))
    return pc.replace_substring(pa.array(texts.tolist(), pa.string()), "T", " ")
