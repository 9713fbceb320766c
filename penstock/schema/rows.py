"""What a user appends, as a record batch of exactly the topic's schema, or a RowError that names the row and column.

Nothing is rounded, cut or guessed: a value that the topic cannot hold exactly is refused. Rows are counted from 0.
Lists of dicts are converted column by column by Arrow. Only where that fails, or would be too lenient, are the values
read one by one (from_python.py).
"""

from __future__ import annotations

import datetime as dt
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

from penstock.errors import RowError
from penstock.schema.arrow import WIDER_TYPES
from penstock.schema.ddl import Field, type_ddl
from penstock.schema.from_python import MisfitError, reader_of
from penstock.suggest import closest

_Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"

# The Python types that Arrow converts exactly as from_python.py would. Left out: float (Arrow turns what is too large
# into infinity), timestamp_ntz (Arrow drops a zone) and nested types (Arrow drops unknown struct fields).
_TRUSTED: dict[pa.DataType, frozenset[type]] = {
    pa.bool_(): frozenset({bool}),
    pa.int8(): frozenset({int}),
    pa.int16(): frozenset({int}),
    pa.int32(): frozenset({int}),
    pa.int64(): frozenset({int}),
    pa.float64(): frozenset({float, int}),
    pa.string(): frozenset({str}),
    pa.binary(): frozenset({bytes}),
    pa.date32(): frozenset({dt.date}),
    pa.timestamp("us", "UTC"): frozenset({dt.datetime}),
}
_TRUSTED_AS_DECIMAL = frozenset({Decimal, int})
_NULL = frozenset({type(None)})

# Not list views: Arrow's cast from a list view to a list loses the items of the last row (seen in pyarrow 26).
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)

# Within a family, Arrow's safe cast checks the values and refuses those that do not fit.
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer,),
    (pa.types.is_decimal,),
    (pa.types.is_date,),
    _TEXTS,
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)


def rows_to_batch(rows: Sequence[Mapping[str, object]], schema: pa.Schema, *, where: str) -> pa.RecordBatch:
    """Return the rows as one batch of `schema`, which is one that `parse_schema` returned.

    A column that a row lacks is null. Which Python values a column takes is the contract of `reader_of`.

    Raises RowError, beginning with `where`, for an unknown column, for a null in a not-null column, and for a value of
    a wrong type or out of range.
    """
    _check_names(rows, schema, where)
    columns = [values_to_column([row.get(field.name) for row in rows], field, where) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    _check_nulls(batch, where)
    return batch


def batch_to_schema(batch: pa.RecordBatch | pa.Table, schema: pa.Schema, *, where: str) -> pa.RecordBatch:
    """Return a user's Arrow batch or table as one batch of `schema`, which is one that `parse_schema` returned.

    Columns may come in any order; a nullable one may be missing. Casts never lose anything: between integers, decimals,
    timestamp units and layouts of one type (dictionary, large, view) when every value fits, and to wider types.
    Timestamps without a zone are taken as UTC where the topic has instants. Text for times, dates and decimals, and
    floats for decimals, are read as the same values in dicts are. A batch that already has the schema is returned
    unchanged.

    Raises RowError, beginning with `where`, for an unknown column, another type, a value that does not fit, and for a
    null in a not-null column.
    """
    if isinstance(batch, pa.RecordBatch) and batch.schema.equals(schema):
        _check_nulls(batch, where)
        return batch
    check_columns_fit(batch.schema.names, schema, where)
    columns = [_cast_column(batch, field, where) for field in schema]
    fitted = pa.RecordBatch.from_arrays(columns, schema=schema)
    _check_nulls(fitted, where)
    return fitted


def _check_names(rows: Sequence[Mapping[str, object]], schema: pa.Schema, where: str) -> None:
    known = frozenset(schema.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise RowError(
                f"{where}: row {number} must map column names to values; found {reprlib.repr(row)}",
                hint="give a list of dicts, one per row",
            )
        if not known.issuperset(row):
            name = next(name for name in row if name not in known)
            raise RowError(
                f"{where}: row {number} has a column that is not in the schema; found {name!r}",
                hint=_column_hint(str(name), schema.names),
            )


def check_columns_fit(names: Sequence[str], schema: pa.Schema, where: str) -> None:
    """Raise RowError unless these are columns of the schema, each once, with all that are not null."""
    for name in names:
        if name not in schema.names:
            raise RowError(
                f"{where}: the batch has a column that is not in the schema; found {name!r}",
                hint=_column_hint(name, schema.names),
            )
    if len(set(names)) < len(names):
        raise RowError(f"{where}: the batch has a column twice; found {', '.join(names)}")
    for field in schema:
        if not field.nullable and field.name not in names:
            raise RowError(f"{where}: column {field.name!r} is not null, but the batch lacks it")


def _column_hint(name: str, known: list[str]) -> str:
    return closest(name, known) or f"the columns are: {', '.join(known)}"


def _check_nulls(batch: pa.RecordBatch, where: str) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            row = column.is_null().index(True).as_py()
            raise RowError(
                f"{where}: row {row}, column {field.name!r} is not null; found no value",
                hint="give a value, or declare the column without 'not null'",
            )


# Python values.


def values_to_column(values: Sequence[object], field: Field, where: str) -> _Column:
    """Python values as a column of the type of `field`; None is null. RowError for a value that does not fit."""
    is_decimal = isinstance(field.type, pa.Decimal128Type)
    trusted = _TRUSTED_AS_DECIMAL if is_decimal else _TRUSTED.get(field.type, frozenset())
    if trusted | _NULL >= set(map(type, values)):
        try:
            return pa.array(values, field.type)
        except (TypeError, ValueError, OverflowError):
            pass  # Reading one by one finds the same value again, and knows its row.
    return pa.array(_read_one_by_one(values, field, where), field.type)


def _read_one_by_one(values: Iterable[object], field: Field, where: str) -> list[object]:
    read = reader_of(field.type, field.name)
    plain = []
    for number, value in enumerate(values):
        try:
            plain.append(read(value))
        except MisfitError as misfit:
            raise RowError(f"{where}: row {number}, {misfit}", hint=misfit.hint) from None
    return plain


# Arrow values.


def _cast_column(batch: pa.RecordBatch | pa.Table, field: Field, where: str) -> _Column:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows).cast(field.type)
    column = batch.column(field.name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == field.type:
        return column
    if isinstance(column, pa.DictionaryArray) and any(is_text(column.dictionary.type) for is_text in _TEXTS):
        # Arrow does not cast dictionaries of string views, which Polars has.
        column = column.dictionary.cast(pa.string()).take(column.indices)
    if _is_read_by_value(column.type, field.type):
        return values_to_column(column.to_pylist(), field, where)
    _check_type(column.type, field.type, field.name, where)
    try:
        return column.cast(field.type)
    except pa.ArrowException:
        row = _first_misfit(column, field.type)
        found = f"{reprlib.repr(column[row].as_py())} ({column.type})"
        raise RowError(
            f"{where}: row {row}, column {field.name!r} takes {type_ddl(field.type)}; found {found}",
            hint="the value does not fit; nothing is rounded or cut",
        ) from None


def _is_read_by_value(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Python reads such values exactly, where Arrow's cast would guess or round."""
    if isinstance(found, pa.DictionaryType):
        return _is_read_by_value(found.value_type, wanted)
    if any(is_text(found) for is_text in _TEXTS):
        return pa.types.is_temporal(wanted) or pa.types.is_decimal(wanted)
    return pa.types.is_floating(found) and pa.types.is_decimal(wanted)


def _first_misfit(column: _Column, type_: pa.DataType) -> int:
    """Find the first row whose cast fails, by bisection. The caller knows that one does."""
    first, length = 0, len(column)
    while length > 1:
        half = length // 2
        try:
            column.slice(first, half).cast(type_)
            first, length = first + half, length - half
        except pa.ArrowException:
            length = half
    return first


def _check_type(found: pa.DataType, wanted: pa.DataType, path: str, where: str) -> None:
    """Raise RowError for a type that cannot be cast without loss, at any depth."""
    if isinstance(found, pa.DictionaryType):
        _check_type(found.value_type, wanted, path, where)
    elif isinstance(found, _LISTS) and isinstance(wanted, pa.ListType):
        _check_type(found.value_type, wanted.value_type, path, where)
    elif isinstance(found, pa.MapType) and isinstance(wanted, pa.MapType):
        _check_type(found.key_type, wanted.key_type, path, where)
        _check_type(found.item_type, wanted.item_type, path, where)
    elif isinstance(found, pa.StructType) and isinstance(wanted, pa.StructType):
        _check_struct(found, wanted, path, where)
    elif not _can_cast(found, wanted):
        raise RowError(
            f"{where}: column {path!r} takes {type_ddl(wanted)}; found {found}",
            hint=f"cast it to {wanted} first, if that is what you mean",
        )


def _check_struct(found: pa.StructType, wanted: pa.StructType, path: str, where: str) -> None:
    names = [field.name for field in wanted]
    for field in found:
        if field.name not in names:
            raise RowError(
                f"{where}: the batch has a field that is not in the schema; found '{path}.{field.name}'",
                hint=_column_hint(field.name, names),
            )
        _check_type(field.type, wanted.field(field.name).type, f"{path}.{field.name}", where)


def _can_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    if found == wanted or pa.types.is_null(found) or wanted in WIDER_TYPES.get(found, ()):
        return True
    if isinstance(found, pa.TimestampType) and isinstance(wanted, pa.TimestampType):
        return wanted.tz is not None or found.tz is None
    if pa.types.is_float16(found):
        return pa.types.is_floating(wanted)
    return any(
        any(is_kind(found) for is_kind in family) and any(is_kind(wanted) for is_kind in family) for family in _FAMILIES
    )
