"""The schema of a topic: its normal form, how it may change, and how old batches are read with the new one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.schema.arrow import conform, evolve, parse_schema, to_ddl
from penstock.schema.ddl import comment_of

WIDENING = ["tinyint", "smallint", "int", "bigint"]


def refusal(old: str, new: str, *, keys: tuple[str, ...] = ()) -> str:
    with pytest.raises(DeclarationError) as caught:
        evolve(parse_schema(old), parse_schema(new), keys=keys)
    return caught.value.message


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.list_(pa.int64(), 3), pa.list_(pa.int64())),
        (pa.list_(pa.field("element", pa.int64(), nullable=False)), pa.list_(pa.int64())),
        (pa.struct([pa.field("x", pa.date64(), nullable=False)]), pa.struct([pa.field("x", pa.date32())])),
        (pa.map_(pa.large_string(), pa.float16()), pa.map_(pa.string(), pa.float32())),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Warsaw"), pa.timestamp("us", "UTC")),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal256(38, 2), pa.decimal128(38, 2)),
    ],
    ids=str,
)
def test_an_arrow_type_takes_its_one_normal_form(given: pa.DataType, normal: pa.DataType) -> None:
    schema = parse_schema(pa.schema([pa.field("x", given, nullable=False)]))
    assert schema == pa.schema([pa.field("x", normal, nullable=False)])
    assert parse_schema(schema).equals(schema, check_metadata=True)
    assert parse_schema(to_ddl(schema)) == schema


@pytest.mark.parametrize(
    ("type_", "hint"),
    [
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int (int32)"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.time32("s"), "microseconds since midnight"),
        (pa.duration("us"), "bigint"),
        (pa.month_day_nano_interval(), "one integer column per unit"),
        (pa.dense_union([pa.field("a", pa.int64())]), "struct"),
        (pa.null(), "such as string"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "the type of its values"),
        (pa.decimal256(50, 2), "at most 38 digits"),
        (pa.decimal128(5, -2), "at most 38 digits"),
        (pa.list_view(pa.int64()), "types that Spark has"),
        (pa.struct([]), "types that Spark has"),
        (pa.uuid(), "types that Spark has"),
    ],
    ids=str,
)
def test_a_type_that_spark_lacks_is_refused_with_what_to_declare_instead(type_: pa.DataType, hint: str) -> None:
    with pytest.raises(DeclarationError, match=r"for column 'outer\.inner'; found") as caught:
        parse_schema(pa.schema([("outer", pa.struct([("inner", type_)]))]))
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_comments_survive_and_other_metadata_does_not() -> None:
    given = pa.schema([pa.field("x", pa.int64(), metadata={"comment": "why", "other": "1"})], metadata={"pandas": "{}"})
    schema = parse_schema(given)
    assert comment_of(schema.field("x")) == "why"
    assert schema.field("x").metadata == {b"comment": b"why"}
    assert not schema.metadata


def test_names_that_spark_would_confuse_are_refused() -> None:
    with pytest.raises(DeclarationError, match="'ID' is declared twice; found 'id' and 'ID'"):
        parse_schema("id int, ID string")
    with pytest.raises(DeclarationError, match=r"'a\.X' is declared twice"):
        parse_schema("a struct<x: int, X: int>")


@pytest.mark.parametrize("name", ["_penstock_offset", "_PENSTOCK", "_penstockish"])
def test_reserved_names_are_refused_for_columns_but_not_inside_structs(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"reserved; found column {name!r}"):
        parse_schema(f"{name} int")
    assert parse_schema(f"x struct<{name}: int>").names == ["x"]


def test_a_schema_without_columns_or_names_is_refused() -> None:
    with pytest.raises(DeclarationError, match="at least one column"):
        parse_schema(pa.schema([]))
    with pytest.raises(DeclarationError, match="needs a name"):
        parse_schema(pa.schema([("", pa.int64())]))


def test_new_nullable_columns_follow_the_old_ones_wherever_they_are_declared() -> None:
    new = evolve(parse_schema("a int, b string not null"), parse_schema("c date, b string not null, d int, a int"))
    assert to_ddl(new) == "a int, b string not null, c date, d int"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((narrow, wide) for i, narrow in enumerate(WIDENING) for wide in WIDENING[i:]),
        ("int", "double"),
        ("float", "double"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("decimal(10,2)", "decimal(11,2)"),
        ("array<int>", "array<bigint>"),
        ("map<string,int>", "map<string,bigint>"),
        ("struct<a: int>", "struct<a: bigint, b: string>"),
        ("array<struct<a: array<int>>>", "array<struct<a: array<bigint>, b: string>>"),
    ],
)
def test_a_type_may_become_wider(old: str, new: str) -> None:
    assert to_ddl(evolve(parse_schema(f"x {old} not null"), parse_schema(f"x {new}"))) == f"x {new}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "int"),
        ("bigint", "double"),
        ("int", "float"),
        ("double", "float"),
        ("int", "string"),
        ("int", "decimal(10,0)"),
        ("date", "timestamp_ntz"),
        ("timestamp", "timestamp_ntz"),
        ("decimal(10,2)", "decimal(10,4)"),
        ("decimal(10,2)", "decimal(10,1)"),
        ("array<bigint>", "array<int>"),
        ("map<int,int>", "map<bigint,int>"),
        ("struct<a: int>", "array<int>"),
    ],
)
def test_a_type_may_not_become_anything_else(old: str, new: str) -> None:
    assert "column 'x' changes from " in refusal(f"x {old}", f"x {new}")


def test_every_refused_change_is_in_the_one_message() -> None:
    old = "a int, b bigint, c string, s struct<x: int, y: int>"
    new = "b int, c string not null, d date not null, s struct<x: int>"
    assert refusal(old, new) == (
        "schema: the new declaration does not fit the rows already stored; column 'a' is gone; "
        "column 'b' changes from bigint to int, which is not wider; "
        "column 'c' becomes not null, but the rows already stored may have nulls; column 's.y' is gone; "
        "new column 'd' is not null, but the rows already stored have no value for it"
    )


def test_a_column_renamed_in_case_only_is_refused() -> None:
    assert "column 'id' is gone" in refusal("id int", "ID int")


def test_the_type_of_a_key_never_changes_because_its_hash_would() -> None:
    assert "'id' is part of the key" in refusal("id int, x int", "id bigint, x bigint", keys=("id",))
    assert evolve(parse_schema("id int not null"), parse_schema("id int"), keys=("id",)) == parse_schema("id int")


def test_a_batch_of_the_same_schema_is_not_touched() -> None:
    schema = parse_schema("a int, b string comment 'new words'")
    batch = pa.record_batch({"a": pa.array([1], pa.int32()), "b": ["x"]})
    assert conform(batch, schema) is batch


def test_an_old_batch_gets_nulls_for_new_columns_and_wider_values() -> None:
    old = parse_schema("n int not null, x float, m decimal(4,1), s struct<a: tinyint>, l array<int>")
    new = parse_schema(
        "n bigint, x double, m decimal(9,3), s struct<a: int, b: string>, l array<bigint>, tags array<string>, "
        "attrs map<string,int>, at timestamp, deep struct<a: struct<b: int>>"
    )
    rows = [
        {"n": 1, "x": 0.5, "m": Decimal("1.5"), "s": {"a": 1}, "l": [1, None]},
        {"n": 2, "x": None, "m": None, "s": None, "l": None},
    ]
    batch = conform(pa.RecordBatch.from_pylist(rows, schema=old), evolve(old, new))
    batch.validate(full=True)
    added = {"tags": None, "attrs": None, "at": None, "deep": None}
    assert batch.schema == new
    assert batch.to_pylist() == [{**rows[0], "s": {"a": 1, "b": None}, **added}, {**rows[1], **added}]


def test_columns_that_did_not_change_are_the_same_memory() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2, 3])})
    conformed = conform(batch.slice(1), parse_schema("a bigint, b string"))
    assert conformed.column("a").buffers()[1].address == batch.column("a").buffers()[1].address
    assert conformed.to_pylist() == [{"a": 2, "b": None}, {"a": 3, "b": None}]


def test_a_batch_with_a_column_that_the_schema_lacks_is_refused() -> None:
    with pytest.raises(DeclarationError, match="found gone"):
        conform(pa.record_batch({"a": [1], "gone": [1]}), parse_schema("a bigint"))


@given(
    st.lists(st.none() | st.integers(-128, 127), max_size=5),
    st.sampled_from([*WIDENING, "double"]),
    st.dates(dt.date(1, 1, 1)),
)
def test_widened_values_are_equal_to_the_old_ones(values: list[int | None], wide: str, day: dt.date) -> None:
    old = parse_schema("n tinyint, day date")
    batch = pa.RecordBatch.from_pylist([{"n": value, "day": day} for value in values], schema=old)
    assert conform(batch, evolve(old, parse_schema(f"n {wide}, day date"))).to_pylist() == batch.to_pylist()
