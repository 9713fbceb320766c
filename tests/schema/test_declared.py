"""A schema may be written as people know it from elsewhere; it means the same as its text."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import DeclarationError
from penstock.schema.arrow import parse_schema
from penstock.schema.declared import as_ddl

TEXT = "order_id bigint not null, `a b` string, amount double, placed_at timestamp"


@pytest.mark.parametrize(
    "schema",
    [
        {"order_id": "bigint not null", "a b": "string", "amount": "double", "placed_at": "timestamp"},
        {"order_id": "long not null", "a b": str, "amount": float, "placed_at": datetime.datetime},
        {
            "order_id": "long not null",
            "a b": pa.string(),
            "amount": pa.float64(),
            "placed_at": pa.timestamp("us", "UTC"),
        },
        [("order_id", "bigint not null"), ("a b", "string"), ("amount", "double"), ("placed_at", "timestamp")],
        ["order_id bigint not null", "`a b` string", "amount double", "placed_at timestamp"],
    ],
)
def test_mappings_and_lists_are_the_text_that_they_mean(schema: Any) -> None:
    assert parse_schema(schema) == parse_schema(TEXT)


def test_a_schema_of_spark_is_the_text_that_it_means() -> None:
    from pyspark.sql import types as T  # noqa: N812 - the name everybody gives it

    schema: Any = T.StructType(
        [
            T.StructField("order_id", T.LongType(), nullable=False),
            T.StructField("amount", T.DecimalType(10, 2)),
            T.StructField("tags", T.ArrayType(T.StringType())),
        ]
    )
    assert parse_schema(schema) == parse_schema("order_id bigint not null, amount decimal(10,2), tags array<string>")


def test_text_and_arrow_stay_as_they_are() -> None:
    arrow = pa.schema([pa.field("id", pa.int64())])
    assert as_ddl(arrow) is arrow
    assert as_ddl(TEXT) is TEXT


@pytest.mark.parametrize(
    ("schema", "message", "hint"),
    [
        (3, "a text of columns and their types; found 3", "write it as text"),
        (None, "a text of columns and their types; found None", "write it as text"),
        ([("a", "int", True)], "a text of columns and their types; found", "write it as text"),
        ({"a": 3}, "the type of column 'a' is a text; found 3", 'such as {"a": "decimal(10,2)"}'),
        ({"a": list}, "the type of column 'a' is a text; found <class 'list'>", 'such as {"a": '),
        ({}, "expected a column name", None),
    ],
)
def test_anything_else_is_refused_with_an_example(schema: Any, message: str, hint: str | None) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        parse_schema(schema)
    assert hint is None or hint in str(refused.value.hint)
