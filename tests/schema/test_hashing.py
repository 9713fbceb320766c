"""The hash of a key: the same as Spark's xxhash64, whatever the type, the nulls, the slice or the length."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.schema.hashing import KeyColumn, can_be_key, hash_keys, partition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)

UTC_MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=dt.UTC)
NAIVE_MOMENT = UTC_MOMENT.replace(tzinfo=None)

# Each value was computed by Spark 4.3: SELECT xxhash64(...).
GOLDEN = [
    (pa.array([True]), -6698625589789238999),
    (pa.array([1], pa.int8()), -6698625589789238999),
    (pa.array([-1], pa.int16()), 2017008487422258757),
    (pa.array([-7], pa.int32()), 4987848727247274714),
    (pa.array([1], pa.int64()), -7001672635703045582),
    (pa.array([dt.date(2024, 2, 29)], pa.date32()), 4183429117450946631),
    (pa.array([UTC_MOMENT], pa.timestamp("us", "UTC")), -2021281541725647388),
    (pa.array([NAIVE_MOMENT], pa.timestamp("us")), -2021281541725647388),
    (pa.array([""]), -7444071767201028348),
    (pa.array(["order-1"]), -8857238006990297597),
    (pa.array(["order-1"], pa.large_string()), -8857238006990297597),
    (pa.array(["żółć"]), -7923092457811661584),
    (pa.array(["0123456789" * 7]), 526385166351516111),
    (pa.array([b"\x00\xff\x10"]), 5415089035989094387),
    (pa.array([b"\x00\xff\x10"], pa.large_binary()), 5415089035989094387),
    (pa.array([Decimal("-12.34")], pa.decimal128(10, 2)), -1614697014534150208),
    (pa.array([Decimal(123456789012345678)], pa.decimal128(18, 0)), 2974817411982866413),
    (pa.array([None], pa.string()), 42),
]


def rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def plain_round(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def plain_stripes(data: bytes, seed: int) -> int:
    lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
    for start in range(0, len(data) - 31, 32):
        words = [int.from_bytes(data[start + 8 * i : start + 8 * i + 8], "little") for i in range(4)]
        lanes = [plain_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    joined = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
    for lane in lanes:
        joined = ((joined ^ plain_round(0, lane)) * P1 + P4) & MASK
    return joined


def plain_xxh64(data: bytes, seed: int) -> int:
    """xxHash64 as its specification writes it, one value at a time."""
    joined = plain_stripes(data, seed) if len(data) >= 32 else seed + P5
    joined = (joined + len(data)) & MASK
    tail = data[len(data) & ~31 :]
    while len(tail) >= 8:
        joined = (rotate(joined ^ plain_round(0, int.from_bytes(tail[:8], "little")), 27) * P1 + P4) & MASK
        tail = tail[8:]
    if len(tail) >= 4:
        joined = (rotate(joined ^ (int.from_bytes(tail[:4], "little") * P1 & MASK), 23) * P2 + P3) & MASK
        tail = tail[4:]
    for byte in tail:
        joined = rotate(joined ^ (byte * P5 & MASK), 11) * P1 & MASK
    joined = (joined ^ joined >> 33) * P2 & MASK
    joined = (joined ^ joined >> 29) * P3 & MASK
    return joined ^ joined >> 32


def plain_hash(row: list[bytes | None], seed: int = 42) -> int:
    """The chain over one row, as the signed number that Spark shows."""
    for value in row:
        seed = seed if value is None else plain_xxh64(value, seed)
    return seed - 2**64 if seed >= 2**63 else seed


def every_type_of_key(rows: int) -> pa.Table:
    """One column per key type; row i has strings of i bytes, and every seventh value is null."""

    def column(values: list[object], type_: pa.DataType) -> KeyColumn:
        return pa.array([None if i % 7 == 3 else value for i, value in enumerate(values)], type_)

    letters = "aż語🌊b"
    return pa.table(
        {
            "bool": column([i % 2 == 0 for i in range(rows)], pa.bool_()),
            "byte": column([i - 100 for i in range(rows)], pa.int8()),
            "short": column([(i - 100) * 300 for i in range(rows)], pa.int16()),
            "int": column([(i - 100) * 20_000_000 for i in range(rows)], pa.int32()),
            "long": column([(i - 100) * 10**16 for i in range(rows)], pa.int64()),
            "date": column([dt.date(1960, 1, 1) + dt.timedelta(days=i * 200) for i in range(rows)], pa.date32()),
            "ts": column([UTC_MOMENT - dt.timedelta(days=i * 400) for i in range(rows)], pa.timestamp("us", "UTC")),
            "ntz": column([NAIVE_MOMENT - dt.timedelta(days=i * 400) for i in range(rows)], pa.timestamp("us")),
            "ascii": column(["x" * i for i in range(rows)], pa.string()),
            "unicode": column([letters * (i // 5) + letters[: i % 5] for i in range(rows)], pa.string()),
            "bytes": column([bytes(range(i)) for i in range(rows)], pa.binary()),
            "money": column([Decimal((i - 100) * 12345).scaleb(-2) for i in range(rows)], pa.decimal128(10, 2)),
            "wide": column([Decimal((i - 100) * 10**15 + i) for i in range(rows)], pa.decimal128(18, 0)),
        }
    )


@pytest.mark.parametrize(("column", "expected"), GOLDEN, ids=lambda part: str(getattr(part, "type", "")) or None)
def test_a_value_has_the_hash_that_spark_gave_it(column: KeyColumn, expected: int) -> None:
    assert hash_keys([column]).tolist() == [expected]


def test_columns_chain_and_a_null_leaves_the_hash_as_it_was() -> None:
    columns = [pa.array([1], pa.int64()), pa.array(["a"]), pa.array([None], pa.int32())]
    assert hash_keys(columns).tolist() == [-8527884376001292090]
    assert hash_keys(columns[:2]).tolist() == [-8527884376001292090]


def test_every_type_and_length_hashes_as_in_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions

    table = every_type_of_key(201)
    keys = [[name] for name in table.column_names] + [["long", "unicode"], ["ascii", "money", "bool"]]
    frame = spark.createDataFrame(table)
    hashed = frame.select(*(functions.xxhash64(*key).alias("+".join(key)) for key in keys)).toArrow()
    for key in keys:
        hashes = hash_keys([table[name].combine_chunks() for name in key])
        assert hashes.tolist() == hashed["+".join(key)].to_pylist(), key


def test_partitions_are_the_positive_remainder_that_spark_computes(spark: SparkSession) -> None:
    hashes = [-(2**63), -13, -12, -1, 0, 1, 12, 2**63 - 1]
    rows = spark.createDataFrame([(value,) for value in hashes], "h long").selectExpr("pmod(h, 12)").collect()
    assert partition_of(np.array(hashes), 12).tolist() == [row[0] for row in rows]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=150)), max_size=40), st.integers(0, MASK))
def test_bytes_hash_as_the_specification_of_xxhash64_says(values: list[bytes | None], seed: int) -> None:
    plain = [plain_hash([value], seed) for value in values]
    assert hash_keys([pa.array(values, pa.binary())], seed=seed).tolist() == plain
    assert hash_keys([pa.array(values, pa.large_binary())], seed=seed).tolist() == plain


@given(st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=50)), max_size=30))
def test_a_key_of_two_columns_hashes_as_the_plain_chain(rows: list[tuple[int | None, str | None]]) -> None:
    columns = [pa.array([n for n, _ in rows], pa.int64()), pa.array([s for _, s in rows], pa.string())]
    plain = [
        plain_hash([
            None if number is None else number.to_bytes(8, "little", signed=True),
            None if text is None else text.encode(),
        ])
        for number, text in rows
    ]  # fmt: skip
    assert hash_keys(columns).tolist() == plain


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_slice_hashes_as_the_same_rows_of_the_whole(start: int, length: int) -> None:
    for column in every_type_of_key(60).itercolumns():
        whole = column.combine_chunks()
        assert hash_keys([whole.slice(start, length)]).tolist() == hash_keys([whole])[start : start + length].tolist()


def test_rows_beyond_one_chunk_hash_as_if_each_stood_alone() -> None:
    numbers = pa.array(range(40_000), pa.int64())
    texts = numbers.cast(pa.string())
    hashes = hash_keys([numbers, texts])
    for row in (0, 16_383, 16_384, 32_768, 39_999):
        assert hashes[row] == hash_keys([numbers[row : row + 1], texts[row : row + 1]])[0]


@pytest.mark.parametrize("column", [column for column, _ in GOLDEN], ids=lambda column: str(column.type))
def test_no_rows_give_no_hashes(column: KeyColumn) -> None:
    assert hash_keys([column.slice(0, 0)]).tolist() == []
    assert hash_keys([pa.array([], column.type)]).tolist() == []


def test_only_empty_strings_hash_without_any_bytes_to_read() -> None:
    assert hash_keys([pa.array(["", None, ""])]).tolist() == [-7444071767201028348, 42, -7444071767201028348]


@pytest.mark.parametrize(
    "type_",
    [pa.float64(), pa.uint32(), pa.timestamp("ns"), pa.date64(), pa.decimal128(19, 0), pa.list_(pa.int64())],
    ids=str,
)
def test_a_type_that_spark_would_hash_otherwise_is_refused_as_a_key(type_: pa.DataType) -> None:
    assert not can_be_key(type_)
    with pytest.raises(DeclarationError, match="cannot be a key"):
        hash_keys([pa.nulls(2, type_)])


def test_all_the_types_of_the_golden_values_can_be_keys() -> None:
    assert all(can_be_key(column.type) for column, _ in GOLDEN)


def test_a_key_without_columns_or_of_unequal_columns_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no columns"):
        hash_keys([])
    with pytest.raises(DeclarationError, match="differ in length; 1 and 2 rows"):
        hash_keys([pa.array([1]), pa.array([1, 2])])


@pytest.mark.parametrize("partitions", [0, -1, 65_537])
def test_an_impossible_number_of_partitions_is_refused(partitions: int) -> None:
    with pytest.raises(DeclarationError, match=f"{partitions} was found"):
        partition_of(np.array([1]), partitions)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 65_536))
def test_partitions_are_always_in_range(hashes: list[int], partitions: int) -> None:
    expected = [value % partitions for value in hashes]
    assert partition_of(np.array(hashes, dtype=np.int64), partitions).tolist() == expected
