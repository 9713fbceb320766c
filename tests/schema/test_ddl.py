"""Spark DDL text to an Arrow schema and back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.schema.ddl import COMMENT, comment_of, parse_ddl, to_ddl, type_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALARS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"),
]  # fmt: skip

SPARK_TEXT = (
    "order_id long not null, amount decimal(10,2), tags array<string>, address struct<street: string, zip: int>, "
    "attrs map<string,string>, placed_at timestamp not null, local timestamp_ntz, day date, raw binary, ok boolean, "
    "a tinyint, b smallint, c float, d double, e array<struct<x: array<map<string,decimal(38,18)>>>>, `odd``name` real"
)

comments = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def metadata(comment: str | None) -> dict[bytes, bytes] | None:
    return None if comment is None else {COMMENT: comment.encode()}


@st.composite
def names(draw: st.DrawFn) -> list[str]:
    """A few names that differ in more than case."""
    plain = st.text("abcxyz_ż0", min_size=1, max_size=4)
    odd = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
    return draw(st.lists(plain | odd, min_size=1, max_size=4, unique_by=str.lower))


def structs(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    @st.composite
    def struct(draw: st.DrawFn) -> pa.DataType:
        fields = [pa.field(name, draw(types), metadata=metadata(draw(comments))) for name in draw(names())]
        return pa.struct(fields)

    return struct()


decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
types = st.recursive(
    st.sampled_from(SCALARS) | decimals,
    lambda inner: st.one_of(inner.map(pa.list_), st.builds(pa.map_, st.sampled_from(SCALARS), inner), structs(inner)),
    max_leaves=5,
)


@st.composite
def schemas(draw: st.DrawFn) -> pa.Schema:
    return pa.schema(
        pa.field(name, draw(types), nullable=draw(st.booleans()), metadata=metadata(draw(comments)))
        for name in draw(names())
    )


@given(schemas())
def test_the_text_of_a_schema_parses_to_the_same_schema(schema: pa.Schema) -> None:
    assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)


def test_spark_reads_the_same_schema_from_the_same_text(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = parse_ddl(SPARK_TEXT)
    for text in (SPARK_TEXT, to_ddl(schema)):
        spark_schema = spark.createDataFrame([], text).schema
        assert to_arrow_schema(spark_schema, timezone="UTC") == schema


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("boolean", pa.bool_()),
        ("byte", pa.int8()),
        ("SHORT", pa.int16()),
        ("Integer", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(7)", pa.decimal128(7, 0)),
        ("numeric ( 7 , 3 )", pa.decimal128(7, 3)),
        ("varchar(20)", pa.string()),
        ("char(3)", pa.string()),
        ("timestamp_ltz", pa.timestamp("us", "UTC")),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("map<int, struct<a int, b: string>>", pa.map_(pa.int32(), pa.struct({"a": pa.int32(), "b": pa.string()}))),
    ],
)
def test_a_type_may_be_spelled_as_spark_allows(text: str, type_: pa.DataType) -> None:
    assert parse_ddl(f"x {text}") == pa.schema([("x", type_)])
    assert parse_ddl(f"x: {text} NOT NULL") == pa.schema([pa.field("x", type_, nullable=False)])


def test_a_keyword_can_be_the_name_of_a_column() -> None:
    assert parse_ddl("not int not null, comment string comment 'x', array array<int>").names == [
        "not",
        "comment",
        "array",
    ]


@pytest.mark.parametrize(
    ("literal", "comment"),
    [("'plain'", "plain"), ("'it''s'", "it's"), (r"'it\'s'", "it's"), ('"two\\nlines"', "two\nlines"), ("''", "")],
)
def test_a_comment_is_kept_with_its_field(literal: str, comment: str) -> None:
    schema = parse_ddl(f"x int comment {literal}, y struct<z: int comment {literal}>")
    assert comment_of(schema.field("x")) == comment
    assert comment_of(schema.field("y").type.field("z")) == comment


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id long, name strng", "unknown type 'strng' for column 'name' (at character 15)"),
        ("id long, a struct<b: strng>", "unknown type 'strng' for column 'a.b' (at character 22)"),
        ("", "expected a column name (at character 1); found the end"),
        ("id int,", "expected a column name (at character 8); found the end"),
        ("id", "expected a type for column 'id' (at character 3); found the end"),
        ("id, name string", "expected a type for column 'id' (at character 3); found ','"),
        ("id int name string", "after column 'id' (at character 8); found 'name'"),
        ("tags array<string", "expected '>' for column 'tags' (at character 18); found the end"),
        ("tags array", "expected '<' for column 'tags' (at character 11); found the end"),
        ("attrs map<string>", "expected ',' for column 'attrs' (at character 17); found '>'"),
        ("x struct<>", "expected a column name (at character 10); found '>'"),
        ("x decimal(39,2)", "found decimal(39,2) for column 'x' (at character 3)"),
        ("x decimal(5,6)", "found decimal(5,6) for column 'x' (at character 3)"),
        ("x decimal(5,1,1)", "found decimal(5,1,1) for column 'x' (at character 3)"),
        ("x decimal(a)", "expected a number for column 'x' (at character 11); found 'a'"),
        ("x int not", "expected 'null' after 'not' (at character 10); found the end"),
        ("x int comment y", "expected a quoted text after 'comment' (at character 15); found 'y'"),
        ("x struct<y: int not null>", "only whole columns can be not null"),
        ("x struct<y: int not null>", "found 'not null' for 'x.y' (at character 17)"),
        ("order-id int", "unexpected character (at character 6); found '-'"),
        ("`x int", "unexpected character (at character 1); found '`'"),
        ("`` int", "expected a column name (at character 1); found '``'"),
    ],
)
def test_a_mistake_is_named_with_its_position(text: str, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_ddl(text)
    assert caught.value.message.startswith("schema: ")
    assert message in caught.value.message


def test_a_misspelled_type_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_ddl("x timestmp")
    assert caught.value.hint == "did you mean 'timestamp'?"
    with pytest.raises(DeclarationError, match="the types are: boolean, tinyint"):
        parse_ddl("x qqq")


@given(st.text("ab <>(),:`'not null int array struct", max_size=40))
def test_any_text_either_parses_or_is_refused_with_a_reason(text: str) -> None:
    with contextlib.suppress(DeclarationError):
        assert parse_ddl(to_ddl(parse_ddl(text))) == parse_ddl(text)


def test_a_type_is_written_as_spark_writes_it() -> None:
    type_ = pa.list_(pa.struct({"a b": pa.decimal128(5, 1), "c": pa.map_(pa.string(), pa.int64())}))
    assert type_ddl(type_) == "array<struct<`a b`: decimal(5,1), c: map<string,bigint>>>"
