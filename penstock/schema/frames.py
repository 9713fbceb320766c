"""Rows that are columns already, as a batch of a topic's schema: Arrow, and data frames of pandas, Polars and others.

No library is imported here but Arrow: a data frame of pandas is known by its class, and all others by the interfaces of
Arrow that they implement. pandas needs care, because its columns say less than ours do:

- NaN, NaT and NA mean that a value is missing. They become null; only in a column of floats that is not null does NaN
  stay what it is.
- Whole numbers with missing values are floats in pandas. They become whole numbers again if all of them are exact.
- Days are timestamps at midnight, and columns of objects are read one value at a time, as the values of dicts are.
- The index is left out, except for levels whose names are columns of the topic.
"""

from __future__ import annotations

import reprlib
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.errors import RowError
from penstock.schema.ddl import Field, type_ddl
from penstock.schema.rows import batch_to_schema, check_columns_fit, values_to_column

_Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
# Floats hold all whole numbers up to this, and not all beyond it.
LARGEST_EXACT = 2**53


class ArrowStream(Protocol):
    """What can be read as Arrow: batches and tables, and data frames of pandas and Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def frame_to_batch(rows: object, schema: pa.Schema, *, where: str) -> pa.RecordBatch | None:
    """Rows that are columns already, as one batch of `schema`; None for rows of any other kind.

    Raises RowError, beginning with `where`, as `batch_to_schema` does.
    """
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return batch_to_schema(rows, schema, where=where)
    if _is_pandas_frame(rows):
        return batch_to_schema(_pandas_table(rows, schema, where), schema, where=where)
    if not hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "__dataframe__"):
        return None
    return batch_to_schema(_arrow_table(rows, where), schema, where=where)


def _arrow_table(rows: Any, where: str) -> pa.Table:
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
        from pyarrow.interchange.from_dataframe import from_dataframe

        return from_dataframe(rows)
    except Exception as error:  # any library may be behind it, with errors of its own
        raise RowError(
            f"{where}: {type(rows).__name__} cannot be read as a table of Arrow; {str(error).partition(chr(10))[0]}",
            hint="append a data frame with one column for each column of the topic",
        ) from error


# -- pandas -----------------------------------------------------------------------------------------------------------


def _is_pandas_frame(rows: object) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def _pandas_table(frame: Any, schema: pa.Schema, where: str) -> pa.Table:
    index_columns = [name for name in frame.index.names if name in schema.names and name not in frame.columns]
    if index_columns:
        frame = frame.reset_index(level=index_columns)
    names = [str(name) for name in frame.columns]
    check_columns_fit(names, schema, where)
    columns = [_pandas_column(frame.iloc[:, at], schema.field(name), where) for at, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)


def _pandas_column(series: Any, field: Field, where: str) -> _Column:
    kind = series.dtype.kind if isinstance(series.dtype, np.dtype) else ""
    if kind == "O" or (kind == "f" and pa.types.is_decimal(field.type)):
        return values_to_column(_values(series), field, where)
    if kind == "f" and pa.types.is_integer(field.type):
        return _whole_numbers(series.to_numpy(), field, where)
    if kind == "f":
        floats: _Column = pa.array(series.to_numpy(), from_pandas=field.nullable)
        return floats
    if kind == "M" and pa.types.is_date32(field.type):
        return _days(series, field, where)
    try:
        column: Any = pa.Array.from_pandas(series)
    except (pa.ArrowException, TypeError, ValueError):
        return values_to_column(_values(series), field, where)
    whole: _Column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole


def _values(series: Any) -> list[object]:
    """The values of a column as Python values; None where pandas says that one is missing."""
    values: list[object] = series.to_numpy(dtype=object).tolist()
    missing = series.isna().to_numpy()
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]


def _whole_numbers(numbers: np.ndarray, field: Field, where: str) -> _Column:
    missing = np.isnan(numbers)
    fits = missing | ((np.abs(numbers) <= LARGEST_EXACT) & (np.trunc(numbers) == numbers))
    if not fits.all():
        row = int(np.argmin(fits))
        raise _misfit(
            row, numbers[row], field, where, "give whole numbers; if values are missing, use the dtype 'Int64'"
        )
    return pa.array(np.where(missing, 0, numbers).astype(np.int64), mask=missing)


def _days(series: Any, field: Field, where: str) -> _Column:
    fits = (series.isna() | (series == series.dt.normalize())).to_numpy()
    if not fits.all():
        row = int(np.argmin(fits))
        raise _misfit(row, series.iloc[row], field, where, "give the day alone: column.dt.normalize()")
    return pa.Array.from_pandas(series).cast(pa.date32())


def _misfit(row: int, value: object, field: Field, where: str, hint: str) -> RowError:
    found = f"{reprlib.repr(value)} ({type(value).__name__})"
    return RowError(f"{where}: row {row}, column {field.name!r} takes {type_ddl(field.type)}; found {found}", hint=hint)
