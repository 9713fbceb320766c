"""The stable hash of a key: exactly Spark SQL's `xxhash64(columns...)`, vectorised with numpy.

Because the two agree, a row's partition can be recomputed inside Spark as `pmod(xxhash64(key), n)`, and it never
changes between machines or versions. This is xxHash64 with one twist from Spark: several columns chain (the hash of
one column is the seed of the next, and a null leaves the seed unchanged).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import DeclarationError

KeyColumn: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
Words: TypeAlias = npt.NDArray[np.uint64]
_Positions: TypeAlias = npt.NDArray[np.int64]

KEY_TYPES = (
    "boolean, tinyint, smallint, int, bigint, date, timestamp, timestamp_ntz, string, binary, "
    "decimal with at most 18 digits"
)
"""What may be a key, in words, for error messages. Floats may not: -0.0 equals 0.0 and NaN equals nothing."""

MAX_PARTITIONS = 65_536

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
# Added to the seed to start the four lanes that xxHash64 runs over strings of 32 bytes and more.
_LANE_STARTS = np.array([0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579], dtype=np.uint64)
_LANE_BYTES = np.array([0, 8, 16, 24], dtype=np.int64)
_LANE_TURNS = (1, 7, 12, 18)

# Three arrays of this many 8-byte words stay within a 1 MiB L2 cache, and numpy's cost per call disappears.
_CHUNK_ROWS = 16_384


def can_be_key(type_: pa.DataType) -> bool:
    """Whether a column of this type can be (part of) a key. Checked at declaration, before the first event."""
    return _is_number(type_) or _is_bytes(type_)


def hash_keys(columns: Sequence[KeyColumn], *, seed: int = 42) -> npt.NDArray[np.int64]:
    """Return one hash per row, the signed 64-bit value that Spark's `xxhash64(columns...)` shows.

    The columns have equal lengths, and types for which `can_be_key` is true; slices and nulls are fine. The cost for
    strings grows with the longest value of a chunk of rows: this is meant for keys, not for documents.
    """
    if not columns:
        raise DeclarationError("key: no columns were given", hint="name at least one key column")
    hashes = np.full(len(columns[0]), seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    for column in columns:
        if len(column) != len(hashes):
            raise DeclarationError(f"key: columns differ in length; {len(hashes)} and {len(column)} rows were found")
        _chain(column, hashes)
    return hashes.view(np.int64)


def partition_of(hashes: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.uint16]:
    """Return the partition of each hash: Spark's `pmod(hash, partitions)`, from 0 to `partitions` - 1."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise DeclarationError(
            f"partitions: must be from 1 to {MAX_PARTITIONS}; {partitions} was found",
            hint="a few partitions per core are enough",
        )
    # numpy divides by one number with SIMD multiplications, but has no such path for the remainder.
    multiples = hashes // partitions
    multiples *= partitions
    return np.subtract(hashes, multiples, out=multiples).astype(np.uint16)


def _is_number(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.TimestampType):
        return bool(type_.unit == "us")
    if isinstance(type_, pa.Decimal128Type):
        return bool(type_.precision <= 18)
    return pa.types.is_signed_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_date32(type_)


def _is_bytes(type_: pa.DataType) -> bool:
    return (
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
    )


def _chain(column: KeyColumn, hashes: Words) -> None:
    """Replace each hash by the hash of the row's value seeded with it; a null keeps its hash."""
    if not can_be_key(column.type):
        raise DeclarationError(f"key: type {column.type} cannot be a key", hint=f"a key is one of: {KEY_TYPES}")
    if len(column) == column.null_count:
        return
    seeds = hashes.copy() if column.null_count else hashes
    if _is_bytes(column.type):
        chain_bytes(column, hashes)
    else:
        chain_numbers(_numbers(column), hashes)
    if column.null_count:
        np.copyto(hashes, seeds, where=column.is_null().to_numpy(zero_copy_only=False))


def _buffer(column: KeyColumn, index: int) -> memoryview:
    return memoryview(column.buffers()[index] or b"")


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _CHUNK_ROWS):
        yield slice(start, min(start + _CHUNK_ROWS, rows))


# Numbers: one word of 4 or 8 bytes per row.


def chain_numbers(values: npt.NDArray[np.integer], hashes: Words) -> None:
    """Replace each hash by the xxHash64 of a number seeded with it: of 8 bytes for 64-bit numbers, of 4 for others."""
    words = np.empty(min(len(values), _CHUNK_ROWS), dtype=np.uint64)
    spare = np.empty_like(words)
    wide = values.dtype.itemsize == 8
    for rows in _chunks(len(values)):
        size = rows.stop - rows.start
        np.copyto(words[:size], values[rows], casting="unsafe")
        if wide:
            _hash_long(words[:size], hashes[rows], spare[:size])
        else:
            _hash_int(words[:size], hashes[rows], spare[:size])


def _numbers(column: KeyColumn) -> npt.NDArray[np.int8 | np.int16 | np.int32 | np.int64]:
    """View the values as the integers that Spark hashes, without a copy except for booleans."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    width = column.type.bit_width // 8
    if isinstance(column.type, pa.Decimal128Type):
        # Up to 18 digits fit the low half of the 128-bit little-endian number.
        return np.frombuffer(_buffer(column, 1), "<i8", 2 * len(column), column.offset * width)[::2]
    return np.frombuffer(_buffer(column, 1), f"<i{width}", len(column), column.offset * width)


def _hash_long(words: Words, hashes: Words, spare: Words) -> None:
    hashes += _P5 + np.uint64(8)
    _mix_word(words, hashes, spare)
    _avalanche(hashes, spare)


def _hash_int(words: Words, hashes: Words, spare: Words) -> None:
    words &= np.uint64(0xFFFFFFFF)
    hashes += _P5 + np.uint64(4)
    _mix_half_word(words, hashes, spare)
    _avalanche(hashes, spare)


# Strings and binaries: any number of bytes per row.


def chain_bytes(column: KeyColumn, hashes: Words) -> None:
    """Replace each hash by the xxHash64 of a string or binary seeded with it; a null counts as no bytes."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    offset_type = np.dtype("<i8" if large else "<i4")
    offsets = np.frombuffer(_buffer(column, 1), offset_type, len(column) + 1, column.offset * offset_type.itemsize)
    values = np.frombuffer(_buffer(column, 2), dtype=np.uint8)
    for rows in _chunks(len(column)):
        ends = offsets[rows.start : rows.stop + 1].astype(np.int64)
        first, last = int(ends[0]), int(ends[-1])
        # Eight bytes more, so that a whole word can be loaded at any position, even the end.
        padded = np.zeros(last - first + 8, dtype=np.uint8)
        padded[:-8] = values[first:last]
        words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), buffer=padded, strides=(1,))
        _hash_bytes(words, ends[:-1] - first, np.diff(ends), hashes[rows])


def _hash_bytes(words: Words, at: _Positions, lengths: _Positions, hashes: Words) -> None:
    """Hash the `lengths` bytes from each position `at`; `words[i]` is the word that starts at byte i. Moves `at`."""
    long = np.flatnonzero(lengths >= 32)
    long_hashes = _hash_stripes(words, at[long], lengths[long] >> 5, hashes[long])
    hashes += _P5
    hashes[long] = long_hashes
    at[long] += lengths[long] & ~31
    hashes += lengths.view(np.uint64)
    remaining = lengths & 31
    for least in (8, 16, 24):
        _mix_where(remaining >= least, words, at, hashes, step=8)
    remaining &= 7
    _mix_where(remaining >= 4, words, at, hashes, step=4)
    remaining &= 3
    for least in (1, 2, 3):
        _mix_where(remaining >= least, words, at, hashes, step=1)
    _avalanche(hashes, np.empty_like(hashes))


def _hash_stripes(words: Words, at: _Positions, stripes: _Positions, seeds: Words) -> Words:
    """Hash the whole 32-byte stripes of each row, in four lanes; a stripe is four words."""
    # With the longest first, the rows that still have a stripe number k are the first `active[k]`.
    order = np.argsort(-stripes, kind="stable")
    active = len(stripes) - np.cumsum(np.bincount(stripes))
    starts = at[order, None] + _LANE_BYTES
    lanes = seeds[order, None] + _LANE_STARTS
    spare = np.empty_like(lanes)
    for stripe, rows in enumerate(active[:-1]):
        _round(lanes[:rows], words[starts[:rows] + 32 * stripe], spare[:rows])
    hashes = np.empty_like(seeds)
    hashes[order] = _join_lanes(lanes, spare)
    return hashes


def _join_lanes(lanes: Words, spare: Words) -> Words:
    hashes = np.zeros(len(lanes), dtype=np.uint64)
    for lane, turns in enumerate(_LANE_TURNS):
        turned = lanes[:, lane].copy()
        _rotate(turned, turns, spare[:, lane])
        hashes += turned
    for lane in range(4):
        value = np.zeros_like(hashes)
        _round(value, lanes[:, lane], spare[:, lane])
        hashes ^= value
        hashes *= _P1
        hashes += _P4
    return hashes


def _mix_where(chosen: npt.NDArray[np.bool_], words: Words, at: _Positions, hashes: Words, *, step: int) -> None:
    """Mix the next `step` bytes (8, 4 or 1) into the chosen rows, and move their positions past them."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return
    positions = at[rows]
    taken, mixed = words[positions], hashes[rows]
    spare = np.empty_like(mixed)
    if step == 8:
        _mix_word(taken, mixed, spare)
    elif step == 4:
        taken &= np.uint64(0xFFFFFFFF)
        _mix_half_word(taken, mixed, spare)
    else:
        taken &= np.uint64(0xFF)
        _mix_byte(taken, mixed, spare)
    hashes[rows] = mixed
    at[rows] = positions + step


# The arithmetic of xxHash64, in place and modulo 2**64; `spare` is scratch space of the same shape.


def _rotate(values: Words, bits: int, spare: Words) -> None:
    np.left_shift(values, np.uint64(bits), out=spare)
    np.right_shift(values, np.uint64(64 - bits), out=values)
    np.bitwise_or(values, spare, out=values)


def _round(lanes: Words, words: Words, spare: Words) -> None:
    np.multiply(words, _P2, out=spare)
    lanes += spare
    _rotate(lanes, 31, spare)
    lanes *= _P1


def _mix_word(words: Words, hashes: Words, spare: Words) -> None:
    words *= _P2
    _rotate(words, 31, spare)
    words *= _P1
    hashes ^= words
    _rotate(hashes, 27, spare)
    hashes *= _P1
    hashes += _P4


def _mix_half_word(words: Words, hashes: Words, spare: Words) -> None:
    words *= _P1
    hashes ^= words
    _rotate(hashes, 23, spare)
    hashes *= _P2
    hashes += _P3


def _mix_byte(words: Words, hashes: Words, spare: Words) -> None:
    words *= _P5
    hashes ^= words
    _rotate(hashes, 11, spare)
    hashes *= _P1


def _avalanche(hashes: Words, spare: Words) -> None:
    np.right_shift(hashes, np.uint64(33), out=spare)
    hashes ^= spare
    hashes *= _P2
    np.right_shift(hashes, np.uint64(29), out=spare)
    hashes ^= spare
    hashes *= _P3
    np.right_shift(hashes, np.uint64(32), out=spare)
    hashes ^= spare
