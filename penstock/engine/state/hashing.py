"""The order and the id of rows: two 64-bit hashes of the values of some columns, the same on every machine, forever.

Stored runs are sorted by them, so this is a file format: a different hash would be a different format. The mechanism is
xxHash64, chained from column to column, with two seeds. Each value becomes 8-byte words or bytes, independent of the
width of its type:

- whole numbers, booleans, dates and timestamps: one word; decimals: two, of their unscaled number;
- floats: the bits of the double, where -0.0 is 0.0 and all NaN are one;
- text and binary: their bytes; beyond `LONG_BYTES` the two words of their BLAKE2b and their length;
- lists, and maps as lists of entries: their length, and the sum of the hashes of their items, each with its index;
- structs: the number of their fields, then the fields;
- null: one word, chained to the complement of the hash so far.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.state.rows import Column
from penstock.errors import RowError
from penstock.schema.hashing import Words, chain_bytes, chain_numbers

ORDER_SEED = 0x70656E73746F636B
ID_SEED = 0x2545F4914F6CDD1D
_ITEM_SEED = 0x5851F42D4C957F2D
_NULL_WORD = 0x6E756C6C
# Text is hashed thousands of rows at a time, and the longest value sets the pace. So longer values are digested first.
LONG_BYTES = 512

Order = npt.NDArray[np.int64]


def hash_rows(columns: Sequence[Column]) -> tuple[Order, Order]:
    """The order and the id of each row, by its values in these columns. Slices and nulls are allowed.

    Without columns all rows are equal, and a single order and id are returned.
    """
    rows = len(columns[0]) if columns else 1
    results = []
    for seed in (ORDER_SEED, ID_SEED):
        hashes = np.full(rows, seed, dtype=np.uint64)
        for column in columns:
            _chain(column, hashes)
        results.append(hashes.view(np.int64))
    return results[0], results[1]


def _chain(column: Column, hashes: Words) -> None:
    """Replace each hash by that of the row's value, with the old hash as its seed."""
    if not len(column):
        return
    if not column.null_count:
        _chain_values(column, hashes)
        return
    null_hashes = ~hashes
    chain_numbers(np.full(len(hashes), _NULL_WORD, dtype=np.int64), null_hashes)
    if column.null_count < len(column):
        _chain_values(column, hashes)
    np.copyto(hashes, null_hashes, where=column.is_null().to_numpy(zero_copy_only=False))


def _chain_values(column: Column, hashes: Words) -> None:
    """The same; the hashes of nulls are undefined."""
    type_ = column.type
    if _is_text(type_):
        _chain_text(column, hashes)
    elif pa.types.is_decimal128(type_):
        halves = np.frombuffer(_buffer(column, 1), "<i8", 2 * len(column), column.offset * 16)
        chain_numbers(halves[::2], hashes)
        chain_numbers(halves[1::2], hashes)
    elif pa.types.is_struct(type_):
        chain_numbers(np.full(len(column), type_.num_fields, dtype=np.int64), hashes)
        for number in range(type_.num_fields):
            _chain(column.field(number), hashes)  # type: ignore[attr-defined]  # a StructArray
    elif pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        _chain_list(column, hashes)
    else:
        chain_numbers(_numbers(column), hashes)


def _is_text(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(type_) for is_kind in kinds)


def _buffer(column: Column, number: int) -> memoryview:
    return memoryview(column.buffers()[number] or b"")


def _numbers(column: Column) -> Order:
    """One word for each value of a column of numbers, dates or timestamps."""
    type_ = column.type
    if pa.types.is_floating(type_):
        doubles = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        doubles[np.isnan(doubles)] = np.nan
        return np.ascontiguousarray(doubles).view(np.int64)
    if pa.types.is_boolean(type_):
        column, type_ = column.cast(pa.int8()), pa.int8()
    plain = pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date32(type_)
    if not plain or pa.types.is_uint64(type_):
        raise RowError(f"rows cannot be told apart by a column of type {type_}", hint="cast it to another type")
    width = type_.bit_width // 8
    kind = "u" if pa.types.is_unsigned_integer(type_) else "i"
    return np.frombuffer(_buffer(column, 1), f"<{kind}{width}", len(column), column.offset * width).astype(np.int64)


def _chain_text(column: Column, hashes: Words) -> None:
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    size = 8 if wide else 4
    offsets = np.frombuffer(_buffer(column, 1), f"<i{size}", len(column) + 1, column.offset * size)
    is_long = np.diff(offsets) > LONG_BYTES
    if not is_long.any():
        chain_bytes(column, hashes)
        return
    content = _buffer(column, 2)
    long, short = np.flatnonzero(is_long), np.flatnonzero(~is_long)
    long_hashes, short_hashes = hashes[long], hashes[short]
    for words in np.array([_digest_words(content[offsets[at] : offsets[at + 1]]) for at in long], dtype=np.int64).T:
        chain_numbers(words, long_hashes)
    chain_bytes(column.take(short), short_hashes)
    hashes[long], hashes[short] = long_hashes, short_hashes


def _digest_words(content: bytes | memoryview) -> tuple[int, int, int]:
    first, second = struct.unpack("<qq", blake2b(content, digest_size=16).digest())
    return first, second, len(content)


def _chain_list(column: Column, hashes: Words) -> None:
    size = 8 if pa.types.is_large_list(column.type) else 4
    offsets = np.frombuffer(_buffer(column, 1), f"<i{size}", len(column) + 1, column.offset * size).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    positions = np.arange(last - first) - np.repeat(offsets[:-1] - first, lengths)
    # The index of an item is hashed before it, so that the sum depends on the order of the items.
    items = np.full(last - first, _ITEM_SEED, dtype=np.uint64)
    chain_numbers(positions, items)
    for part in _items(column):
        _chain(part.slice(first, last - first), items)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(items)])
    chain_numbers(lengths, hashes)
    chain_numbers(sums[offsets[1:] - first] - sums[offsets[:-1] - first], hashes)


def _items(column: Any) -> tuple[Column, ...]:
    """The child columns that hold the items of a list column: one, or the keys and values of a map. Not sliced."""
    return (column.keys, column.items) if pa.types.is_map(column.type) else (column.values,)


# -- one row ----------------------------------------------------------------------------------------------------------

_MASK = 0xFFFFFFFFFFFFFFFF
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=80)

_Pair = tuple[int, int]
_Step = Callable[[Any, int, int], _Pair]
"""The two hashes after a value that is not null, given the two before it."""


def hash_key(values: Sequence[object], types: Sequence[pa.DataType]) -> tuple[int, int]:
    """The order and the id of one row of Python values: the same as those of `hash_rows` for columns of these types.

    A value that is not of its type is a RowError, such as text in a column of numbers, or a number with a fraction in a
    column of whole numbers. A timestamp without a zone is in UTC.
    """
    return key_hasher(types)(values)


def key_hasher(types: Sequence[pa.DataType]) -> Callable[[Sequence[object]], tuple[int, int]]:
    """`hash_key` for many rows of the same types."""
    steps = [_step(type_) for type_ in types]

    def hash_values(values: Sequence[object]) -> tuple[int, int]:
        order, id_ = ORDER_SEED, ID_SEED
        for value, step in zip(values, steps, strict=True):
            try:
                order, id_ = _chain_null(order, id_) if value is None else step(value, order, id_)
            except (TypeError, ValueError, AttributeError, OverflowError, ArithmeticError, pa.ArrowException):
                type_ = types[steps.index(step)]
                raise RowError(f"a value of type {type_} is needed; found {value!r}") from None
        return _as_signed(order), _as_signed(id_)

    return hash_values


def _chain_null(order: int, id_: int) -> _Pair:
    return _chain_word(_NULL_WORD, order ^ _MASK, id_ ^ _MASK)


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@lru_cache(maxsize=1024)
def _step(type_: pa.DataType) -> _Step:
    if pa.types.is_boolean(type_):
        return lambda value, order, id_: _chain_word(_as_bit(value), order, id_)
    if pa.types.is_integer(type_):
        least, most = (0, 2**type_.bit_width) if pa.types.is_unsigned_integer(type_) else _bounds(type_.bit_width)
        return lambda value, order, id_: _chain_word(_whole_number(value, least, most), order, id_)
    if pa.types.is_floating(type_):
        single = pa.types.is_float32(type_)
        return lambda value, order, id_: _chain_word(_double_bits(value, single), order, id_)
    if isinstance(type_, pa.Decimal128Type):
        return _decimal_step(type_.precision, type_.scale)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return lambda value, order, id_: _chain_content(str.encode(value), order, id_)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return lambda value, order, id_: _chain_content(_content(value), order, id_)
    if pa.types.is_date32(type_):
        return lambda value, order, id_: _chain_word(_days(value), order, id_)
    if isinstance(type_, pa.TimestampType) and type_.unit == "us":
        return lambda value, order, id_: _chain_word(_microseconds(value), order, id_)
    return lambda value, order, id_: _chain_array(pa.array([value], type_), order, id_)


def _bounds(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1)


def _as_bit(value: object) -> int:
    if not isinstance(value, bool):
        raise TypeError
    return int(value)


def _whole_number(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not least <= value < most or value != int(value):
        raise TypeError
    return int(value)


def _double_bits(value: Any, single: bool) -> int:
    if isinstance(value, str | bool):
        raise TypeError
    double = float(value) + 0.0
    if single:
        (double,) = struct.unpack("<f", struct.pack("<f", double))
    if double != double:
        return 0x7FF8000000000000
    (bits,) = struct.unpack("<Q", struct.pack("<d", double))
    return int(bits)


def _decimal_step(precision: int, scale: int) -> _Step:
    def chain(value: Any, order: int, id_: int) -> _Pair:
        if isinstance(value, float | str | bool):
            raise TypeError
        scaled = _EXACT.scaleb(Decimal(value), scale)
        unscaled = int(scaled)
        if unscaled != scaled or abs(unscaled) >= 10**precision:
            raise ValueError
        order, id_ = _chain_word(unscaled, order, id_)
        return _chain_word(unscaled >> 64, order, id_)

    return chain


def _content(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


def _days(value: Any) -> int:
    if isinstance(value, datetime):
        raise TypeError
    return int(date.toordinal(value)) - 719_163


def _microseconds(value: Any) -> int:
    at = value if value.tzinfo else value.replace(tzinfo=UTC)
    return int((at - _EPOCH) // _MICROSECOND)


def _chain_array(column: Column, order: int, id_: int) -> _Pair:
    results = []
    for seed in (order, id_):
        hashes = np.full(1, seed, dtype=np.uint64)
        _chain(column, hashes)
        results.append(int(hashes[0]))
    return results[0], results[1]


# xxHash64 with plain numbers, for two seeds at once: what is independent of the seed is computed once.


def _chain_word(word: int, order: int, id_: int) -> _Pair:
    bits = word * _P2 & _MASK
    bits = ((bits << 31 | bits >> 33) & _MASK) * _P1 & _MASK
    order = (order + _P5 + 8 & _MASK) ^ bits
    id_ = (id_ + _P5 + 8 & _MASK) ^ bits
    return (
        _avalanche((order << 27 | order >> 37) * _P1 + _P4 & _MASK),
        _avalanche((id_ << 27 | id_ >> 37) * _P1 + _P4 & _MASK),
    )


def _avalanche(value: int) -> int:
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _chain_content(content: bytes, order: int, id_: int) -> _Pair:
    length = len(content)
    if length > LONG_BYTES:
        for word in _digest_words(content):
            order, id_ = _chain_word(word, order, id_)
        return order, id_
    striped_length = length & ~31
    if striped_length:
        order, id_ = _stripes(content, striped_length, order), _stripes(content, striped_length, id_)
    else:
        order, id_ = order + _P5, id_ + _P5
    order, id_ = order + length & _MASK, id_ + length & _MASK
    at = striped_length
    while at + 8 <= length:
        word = int.from_bytes(content[at : at + 8], "little") * _P2 & _MASK
        word = ((word << 31 | word >> 33) & _MASK) * _P1 & _MASK
        order, id_ = order ^ word, id_ ^ word
        order = (order << 27 | order >> 37) * _P1 + _P4 & _MASK
        id_ = (id_ << 27 | id_ >> 37) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= length:
        word = int.from_bytes(content[at : at + 4], "little") * _P1 & _MASK
        order, id_ = order ^ word, id_ ^ word
        order = ((order << 23 | order >> 41) & _MASK) * _P2 + _P3 & _MASK
        id_ = ((id_ << 23 | id_ >> 41) & _MASK) * _P2 + _P3 & _MASK
        at += 4
    for byte in content[at:]:
        word = byte * _P5 & _MASK
        order, id_ = order ^ word, id_ ^ word
        order = ((order << 11 | order >> 53) & _MASK) * _P1 & _MASK
        id_ = ((id_ << 11 | id_ >> 53) & _MASK) * _P1 & _MASK
    return _avalanche(order), _avalanche(id_)


def _stripes(content: bytes, length: int, seed: int) -> int:
    lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed, seed - _P1 & _MASK]
    words = struct.unpack(f"<{length // 8}Q", content[:length])
    for at, word in enumerate(words):
        lane = lanes[at & 3] + word * _P2 & _MASK
        lanes[at & 3] = ((lane << 31 | lane >> 33) & _MASK) * _P1 & _MASK
    total = sum((lane << turn | lane >> 64 - turn) & _MASK for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    total &= _MASK
    for lane in lanes:
        bits = lane * _P2 & _MASK
        bits = ((bits << 31 | bits >> 33) & _MASK) * _P1 & _MASK
        total = (total ^ bits) * _P1 + _P4 & _MASK
    return total
