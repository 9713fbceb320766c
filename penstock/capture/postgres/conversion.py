"""The texts that PostgreSQL shows, as values of Arrow types: whole columns at once, and never another value or null.

The texts must be shown with `SESSION_SETTINGS`. A value that the Arrow type cannot hold ends the conversion with an
error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.array_text import split_arrays
from penstock.capture.postgres.types import Column, ColumnLayout, PostgresType
from penstock.errors import DeclarationError
from penstock.schema.ddl import type_ddl

LATEST, EARLIEST = "9999-12-31 23:59:59.999999", "0001-01-01 00:00:00"
"""What the dates and times 'infinity' and '-infinity' become: the ends of what Spark can show, so order is kept."""

_MISFIT_LENGTH = 100  # of a value in an error
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Convert: TypeAlias = Callable[[Column], Column]


def convert_text(texts: Column, column: ColumnLayout, *, table: str) -> Column:
    """The values of a column, from their texts (string or binary), as `column.arrow`. Nulls stay null.

    'infinity' and '-infinity' of dates and timestamps become `LATEST` and `EARLIEST`. DeclarationError: a value
    does not fit the Arrow type, such as a year before 1 or after 9999, NaN in a decimal, or an array of two dimensions.
    """
    convert = _converter(column.arrow, column.type)
    try:
        return convert(_utf8(texts))
    except pa.ArrowInvalid:
        raise _misfit(_first_misfit(texts, convert), column, table) from None


def _utf8(texts: Column) -> Column:
    return pc.cast(texts, pa.string())


def _first_misfit(texts: Column, convert: _Convert) -> object:
    """The first value that cannot be converted, found by halving."""
    while len(texts) > 1:
        half = len(texts) // 2
        try:
            convert(_utf8(texts[:half]))
            texts = texts[half:]
        except pa.ArrowInvalid:
            texts = texts[:half]
    return texts[0].as_py()


def _misfit(value: object, column: ColumnLayout, table: str) -> DeclarationError:
    where = f"table {table}, column {column.name}"
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            shown = repr(value[:_MISFIT_LENGTH])
            hint = "the encoding of the database is probably SQL_ASCII, which allows anything: correct the row"
            return DeclarationError(f"{where}: {shown} is not UTF-8", hint=hint)
    text = str(value)
    shown = text if len(text) <= _MISFIT_LENGTH else f"{text[:_MISFIT_LENGTH]}..."
    return DeclarationError(
        f"{where}: '{shown}' does not fit the type {type_ddl(column.arrow)}",
        hint=f'capture the column as text: as_text=["{column.name}"]',
    )


def _converter(arrow: pa.DataType, type_: PostgresType) -> _Convert:
    if isinstance(arrow, pa.ListType):
        return lambda texts: _lists(texts, arrow, type_)
    if pa.types.is_timestamp(arrow) or pa.types.is_date(arrow):
        return lambda texts: _times(texts, arrow)
    if pa.types.is_binary(arrow):
        return _binaries
    if pa.types.is_boolean(arrow):
        return _booleans
    return lambda texts: pc.cast(texts, arrow)


def _booleans(texts: Column) -> Column:
    is_true = pc.is_in(texts, pa.array(["t", "true"]))
    is_false = pc.is_in(texts, pa.array(["f", "false"]))
    if not pc.all(pc.or_(pc.or_(is_true, is_false), pc.is_null(texts)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a boolean")
    values: Column = pc.if_else(pc.is_valid(texts), is_true, pa.scalar(None, pa.bool_()))
    return values


def _times(texts: Column, arrow: pa.DataType) -> Column:
    try:
        return pc.cast(texts, arrow)
    except pa.ArrowInvalid:  # it may be for 'infinity', which few columns have
        return pc.cast(_finite(texts, arrow), arrow)


def _finite(texts: Column, arrow: pa.DataType) -> Column:
    latest, earliest = LATEST, EARLIEST
    if pa.types.is_date(arrow):
        latest, earliest = LATEST[:10], EARLIEST[:10]
    elif pa.types.is_timestamp(arrow) and arrow.tz is not None:
        latest, earliest = f"{LATEST}+00", f"{EARLIEST}+00"
    bounded: Column = pc.if_else(pc.equal(texts, pa.scalar("infinity")), latest, texts)
    finite: Column = pc.if_else(pc.equal(bounded, pa.scalar("-infinity")), earliest, bounded)
    return finite


def _lists(texts: Column, arrow: pa.ListType[pa.DataType], type_: PostgresType) -> Column:
    while type_.kind == "domain" and type_.element is not None:
        type_ = type_.element
    assert type_.element is not None, "an array without a type of its items"
    items_are_texts = pa.types.is_string(arrow.value_type)
    offsets, items = split_arrays(texts, type_.delimiter, items_are_texts=items_are_texts)
    values = _converter(arrow.value_type, type_.element)(items)
    lists: Column = pa.ListArray.from_arrays(offsets, values, type=arrow, mask=pc.is_null(texts))
    return lists


_NIBBLES: _Bytes = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _binaries(texts: Column) -> Column:
    """Bytes from their hexadecimal form: the prefix `\\x`, then two digits for each byte."""
    is_valid = pc.is_valid(texts)
    texts = pc.if_else(is_valid, texts, "\\x")
    if not pc.all(pc.starts_with(texts, "\\x"), min_count=0).as_py():
        raise pa.ArrowInvalid("not the hexadecimal form of bytes")
    _, offsets_buffer, bytes_buffer = texts.buffers()
    offsets = np.frombuffer(memoryview(offsets_buffer or b"\0\0\0\0"), np.int32)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
    # Not pc.binary_slice, which fails where many texts are shorter than what it cuts off (seen in pyarrow 26).
    is_digit = np.ones(offsets[-1], np.bool_)
    is_digit[: offsets[0]] = is_digit[offsets[:-1]] = is_digit[offsets[:-1] + 1] = False
    nibbles = _NIBBLES[np.frombuffer(memoryview(bytes_buffer or b""), np.uint8, offsets[-1])[is_digit]]
    if (nibbles > 15).any() or (np.diff(offsets) % 2).any():
        raise pa.ArrowInvalid("not the hexadecimal form of bytes")
    content = nibbles[0::2] << 4 | nibbles[1::2]
    ends = ((offsets - offsets[0]) // 2 - np.arange(len(offsets))).astype(np.int32)
    validity = pa.array(is_valid.to_numpy(zero_copy_only=False)).buffers()[1]
    buffers = [validity, pa.py_buffer(ends.tobytes()), pa.py_buffer(content.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)
