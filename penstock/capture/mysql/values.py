"""Values of columns as Arrow arrays: from the bytes of the binary log, and from the text of a query. Pure.

Both ways give equal arrays for equal values: that is what makes a copied row and a changed row the same row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.mysql.cells import Bools, Bytes, Cells, Ints, binary_array, number_array, rows_at, text_array
from penstock.capture.mysql.types import ColumnType
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from penstock.capture.mysql.cells import Array

_WIDE_CODECS = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_GROUP_DIGITS = 9  # decimals are stored in groups of so many digits, each in four bytes
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of a shorter group, by its digits
_FRACTION_BYTES = (0, 1, 1, 2, 2, 3, 3)  # of a second, by its digits


@dataclass(frozen=True, slots=True)
class Column:
    """A captured column. `where` names it in messages; with `as_text`, its values become text, whatever its type."""

    name: str
    type: ColumnType
    where: str
    as_text: bool = False
    characters: tuple[str, ...] = ()  # of a charset with one byte per character: what each byte means

    @property
    def arrow(self) -> pa.DataType:
        return pa.string() if self.as_text else self.type.arrow


def is_supported_charset(charset: str, single_byte: Mapping[str, object]) -> bool:
    return charset in UTF8 or charset in _WIDE_CODECS or charset in single_byte


# -- from a query -----------------------------------------------------------------------------------------------------


def query_expression(column: str, type_: ColumnType) -> str:
    """What to select so that a value comes exactly: the server shows fewer digits of a float than it has."""
    if type_.kind == "float":
        return f"CAST({column} AS DOUBLE)"
    return f"{column} + 0" if type_.kind == "bit" else column


def array_from_query(cells: Cells, column: Column) -> Array:
    """The values of a column that a query has given as text."""
    if column.type.kind in ("binary", "fixed binary"):
        return _binary_as_text(cells.binary(), column) if column.as_text else cells.binary()
    texts = text_array(*cells.joined(), cells.valid)
    if column.type.kind in ("float", "double"):
        return texts.cast(pa.float64()).cast(column.type.arrow).cast(column.arrow)
    if column.as_text:
        return texts
    try:
        return (
            texts.cast(column.type.arrow) if column.type.kind != "timestamp" else _zoned(texts.cast(pa.timestamp("us")))
        )
    except pa.ArrowInvalid as error:
        if column.type.kind in ("date", "datetime", "timestamp"):
            raise _no_date_error(column) from error
        if column.type.kind == "whole":
            raise _too_large_error(column, _longest(texts)) from error
        raise


def _longest(texts: Array) -> object:
    """Of unsigned numbers with too many digits for their type, one that is too large."""
    return max(filter(None, texts.to_pylist()), key=lambda text: (len(text), text))


def _zoned(times: Array) -> Array:
    zoned: Array = times.view(pa.timestamp("us", "UTC"))
    return zoned


# -- from the binary log ----------------------------------------------------------------------------------------------


def array_from_log(cells: Cells, column: Column) -> Array:
    """The values of a column that row images of the binary log have."""
    type_ = column.type
    if type_.kind == "whole":
        return _whole_numbers(cells, column)
    if type_.kind in ("float", "double"):
        width = 4 if type_.kind == "float" else 8
        return number_array(cells.matrix(width), type_.arrow, cells.valid).cast(column.arrow)
    if type_.kind == "decimal":
        return _decimals(cells, column)
    if type_.kind in ("text", "enum", "set"):
        return _texts(cells, column)
    if type_.kind == "bit":
        numbers = cells.big_endian((type_.width + 7) // 8)
        return _as_declared(_unsigned(numbers, type_.arrow, cells.valid), column)
    if type_.kind in ("year", "date", "time", "datetime", "timestamp"):
        return _times(cells, column)
    if type_.kind == "fixed binary":
        # The log leaves out the zeros at the end.
        offsets = np.arange(len(cells) + 1, dtype=np.int64) * type_.width
        array = binary_array(offsets, cells.padded(type_.width).reshape(-1), cells.valid)
    else:
        array = cells.binary()
    return _binary_as_text(array, column) if column.as_text else array


def _as_declared(array: Array, column: Column) -> Array:
    return array.cast(pa.string()) if column.as_text else array


def _binary_as_text(array: Array, column: Column) -> Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise DeclarationError(
            f"{column.where}: it is captured as text, and has bytes that are not UTF-8",
            hint="capture it as what it is: leave it out of the columns that are captured as text",
        ) from error


def _whole_numbers(cells: Cells, column: Column) -> Array:
    type_ = column.type
    numbers = cells.little_endian(type_.width, signed=not type_.unsigned)
    if type_.unsigned and type_.width == 8:
        if column.as_text:
            return _unsigned(numbers.view(np.uint64), pa.decimal128(20, 0), cells.valid).cast(pa.string())
        too_large = cells.valid & (numbers.view(np.int64) < 0)
        if too_large.any():
            raise _too_large_error(column, int(numbers.view(np.uint64)[too_large][0]))
    return _as_declared(number_array(numbers.astype(type_.arrow.to_pandas_dtype()), type_.arrow, cells.valid), column)


def _too_large_error(column: Column, value: object) -> DeclarationError:
    return DeclarationError(
        f"{column.where}: {value} does not fit into a bigint, whose largest value is {2**63 - 1}",
        hint=f'capture the column as text: as_text=["{column.name}"]; its topic must be a new one',
    )


def _unsigned(numbers: np.typing.NDArray[np.uint64], type_: pa.DataType, valid: Bools) -> Array:
    if type_ == pa.int64():
        return number_array(numbers, type_, valid)
    words = np.zeros((len(numbers), 2), np.uint64)
    words[:, 0] = numbers
    return number_array(words, type_, valid)


# -- decimals


def _decimals(cells: Cells, column: Column) -> Array:
    """Decimals are stored big-endian in groups of digits; the first bit is set if it is not negative, and else all
    other bits are inverted."""
    digits, scale = column.type.width, column.type.scale
    sizes = _digit_groups(digits, scale)
    stored = cells.matrix(sum(_GROUP_BYTES[size] for size in sizes))
    negative = (stored[:, 0] & 0x80) == 0
    stored[:, 0] ^= 0x80
    stored[negative] = ~stored[negative]
    groups = _group_numbers(stored, sizes)
    if digits <= 18 and not column.as_text:
        total = np.zeros(len(cells), np.int64)
        for group, size in zip(groups, sizes, strict=True):
            total = total * 10**size + group
        total = np.where(negative, -total, total)
        return number_array(np.stack([total, total >> 63], axis=1), column.type.arrow, cells.valid)
    texts = _decimal_texts(groups, sizes, scale, negative & cells.valid)
    return _nulled(texts, cells).cast(column.arrow)


def _digit_groups(digits: int, scale: int) -> list[int]:
    whole, part = divmod(digits - scale, _GROUP_DIGITS)
    sizes = ([part] if part else []) + [_GROUP_DIGITS] * whole
    whole, part = divmod(scale, _GROUP_DIGITS)
    return sizes + [_GROUP_DIGITS] * whole + ([part] if part else [])


def _group_numbers(stored: Bytes, sizes: list[int]) -> list[Ints]:
    groups, place = [], 0
    for size in sizes:
        number = np.zeros(len(stored), np.int64)
        for byte in range(_GROUP_BYTES[size]):
            number = number << 8 | stored[:, place + byte]
        groups.append(number)
        place += _GROUP_BYTES[size]
    return groups


def _decimal_texts(groups: list[Ints], sizes: list[int], scale: int, negative: Bools) -> Array:
    parts = [_padded(group, size) for group, size in zip(groups, sizes, strict=True)]
    whole_groups, found = 0, 0
    while found < sum(sizes) - scale:
        found += sizes[whole_groups]
        whole_groups += 1
    whole = _join(*parts[:whole_groups]) if whole_groups else pa.array([""] * len(negative), pa.string())
    whole = pc.utf8_ltrim(whole, characters="0")
    whole = pc.if_else(pc.equal(whole, pa.scalar("")), "0", whole)
    texts = _join(_signs(negative), whole)
    return _join(texts, _join(*parts[whole_groups:]), separator=".") if scale else texts


def _signs(negative: Bools) -> Array:
    array: Array = pc.if_else(pa.array(negative), "-", "")
    return array


def _join(*texts: Array, separator: str = "") -> Array:
    joined: Array = pc.binary_join_element_wise(*texts, pa.scalar(separator))  # type: ignore[call-overload]
    return joined


def _padded(numbers: Ints, width: int) -> Array:
    padded: Array = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")
    return padded


# -- texts


def _texts(cells: Cells, column: Column) -> Array:
    if column.type.kind in ("enum", "set"):
        return _labels(cells, column.type)
    charset = column.type.charset
    offsets, data = cells.joined()
    if charset in UTF8:
        return text_array(offsets, data, cells.valid)
    if column.characters:
        if not (data >= 0x80).any() and column.characters[:128] == tuple(map(chr, range(128))):
            return text_array(offsets, data, cells.valid)
        encoded = [character.encode() for character in column.characters]
        ends = np.cumsum(np.array([len(character) for character in encoded], np.int64)[data])
        moved = np.concatenate([np.zeros(1, np.int64), ends])[offsets]
        translated = b"".join([encoded[byte] for byte in data.tobytes()])
        return text_array(moved, np.frombuffer(translated, np.uint8), cells.valid)
    codec = _WIDE_CODECS[charset]
    values = cells.binary().to_pylist()
    return pa.array([None if value is None else value.decode(codec) for value in values], pa.string())


def _labels(cells: Cells, type_: ColumnType) -> Array:
    """Texts of an enum or a set, which are stored as a number or as bits. Number 0 of an enum is the empty text."""
    numbers, inverse = np.unique(cells.little_endian(type_.width), return_inverse=True)
    if type_.kind == "enum":
        texts = [("", *type_.labels)[int(number)] for number in numbers]
    else:
        texts = [
            ",".join(label for bit, label in enumerate(type_.labels) if int(number) >> bit & 1) for number in numbers
        ]
    return _nulled(rows_at(pa.array(texts, pa.string()), inverse.reshape(-1)), cells)


# -- dates and times


def _times(cells: Cells, column: Column) -> Array:
    type_ = column.type
    if type_.kind == "year":
        years = cells.little_endian(1).astype(np.int32)
        years = np.where(years == 0, 0, years + 1900).astype(np.int32)
        return (
            _nulled(_padded(years.astype(np.int64), 4), cells)
            if column.as_text
            else number_array(years, pa.int32(), cells.valid)
        )
    if type_.kind == "time":
        return _clock_times(cells, type_)
    if type_.kind == "timestamp":
        return _timestamps(cells, column)
    if type_.kind == "date":
        packed = cells.little_endian(3).astype(np.int64)
        year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
        clock, fraction = np.zeros_like(packed), np.zeros_like(packed)
    else:
        packed = cells.big_endian(5).astype(np.int64) - (1 << 39)
        packed = np.where(cells.valid, packed, 0)
        year, month, day = (packed >> 22) // 13, (packed >> 22) % 13, packed >> 17 & 31
        clock, fraction = packed & 0x1FFFF, _fractions(cells, 5, type_.scale)
    if column.as_text:
        return _date_texts(cells, type_, (year, month, day, clock, fraction))
    days = _days(year, month, day, cells.valid, column)
    if type_.kind == "date":
        return number_array(days.astype(np.int32), pa.date32(), cells.valid)
    seconds = days * 86400 + (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    return number_array(seconds * 1_000_000 + fraction, pa.timestamp("us"), cells.valid)


def _days(year: Ints, month: Ints, day: Ints, valid: Bools, column: Column) -> Ints:
    """Days since 1970. DeclarationError for what is no date: zeros, and days that a month does not have."""
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = first + day - 1
    next_first = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    if (valid & ((year == 0) | (month == 0) | (day == 0) | (days >= next_first))).any():
        raise _no_date_error(column)
    whole: Ints = np.where(valid, days, 0).astype(np.int64)
    return whole


def _no_date_error(column: Column) -> DeclarationError:
    return DeclarationError(
        f"{column.where}: it has a value that is no date, such as 0000-00-00; found one in a column of type "
        f"{column.type.kind}",
        hint="capture the column as text, or correct the rows; sql_mode NO_ZERO_DATE,NO_ZERO_IN_DATE prevents new ones",
    )


def _fractions(cells: Cells, start: int, digits: int) -> Ints:
    """Microseconds that are stored behind `start` bytes."""
    width = _FRACTION_BYTES[digits]
    if not width:
        return np.zeros(len(cells), np.int64)
    behind = Cells(cells.buffer, cells.starts + start, cells.lengths, cells.valid)
    fractions: Ints = behind.big_endian(width).astype(np.int64) * 100 ** (3 - width)
    return fractions


def _timestamps(cells: Cells, column: Column) -> Array:
    seconds = cells.big_endian(4).astype(np.int64)
    fraction = _fractions(cells, 4, column.type.scale)
    zero = cells.valid & (seconds == 0) & (fraction == 0)
    if zero.any() and not column.as_text:
        raise _no_date_error(column)
    times = number_array(seconds * 1_000_000 + fraction, pa.timestamp("us"), cells.valid)
    if not column.as_text:
        return _zoned(times)
    days, clock = np.divmod(seconds, 86400)
    dates = np.where(zero, np.int64(0), days).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    count = months.astype(np.int64)
    year, month = 1970 + count // 12, count % 12 + 1
    day = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    packed = clock // 3600 << 12 | clock // 60 % 60 << 6 | clock % 60
    parts = [np.where(zero, 0, part) for part in (year, month, day, packed, fraction)]
    return _date_texts(cells, column.type, (parts[0], parts[1], parts[2], parts[3], parts[4]))


def _date_texts(cells: Cells, type_: ColumnType, parts: tuple[Ints, Ints, Ints, Ints, Ints]) -> Array:
    year, month, day, clock, fraction = parts
    dates = _join(_padded(year, 4), _padded(month, 2), _padded(day, 2), separator="-")
    if type_.kind == "date":
        return _nulled(dates, cells)
    times = _clock_texts(clock >> 12, clock >> 6 & 63, clock & 63, fraction, type_.scale)
    return _nulled(_join(dates, times, separator=" "), cells)


def _clock_times(cells: Cells, type_: ColumnType) -> Array:
    """Times of day or durations: three bytes and a fraction, moved so that they sort; negative ones are inverted."""
    width = _FRACTION_BYTES[type_.scale]
    packed = cells.big_endian(3 + width).astype(np.int64) - (0x800000 << 8 * width)
    packed = np.where(cells.valid, packed, 0)
    negative, packed = packed < 0, np.abs(packed)
    fraction = (packed & ((1 << 8 * width) - 1)) * 100 ** (3 - width)
    clock = packed >> 8 * width
    texts = _clock_texts(clock >> 12 & 0x3FF, clock >> 6 & 63, clock & 63, fraction, type_.scale)
    return _nulled(_join(_signs(negative), texts), cells)


def _clock_texts(hours: Ints, minutes: Ints, seconds: Ints, fraction: Ints, digits: int) -> Array:
    texts = _join(_padded(hours, 2), _padded(minutes, 2), _padded(seconds, 2), separator=":")
    if not digits:
        return texts
    return _join(texts, _padded(fraction // 10 ** (6 - digits), digits), separator=".")


def _nulled(texts: Array, cells: Cells) -> Array:
    nulled: Array = pc.if_else(pa.array(cells.valid), texts, pa.scalar(None, pa.string()))
    return nulled
