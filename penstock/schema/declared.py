"""The ways in which a schema can be written, as DDL text: what people bring along from pandas, Arrow and Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.schema.ddl import type_ddl

AnySchema = str | pa.Schema | Mapping[str, Any] | Sequence[Any]
"""DDL text, an Arrow schema, `{"id": "bigint"}`, or `[("id", "bigint")]`."""

_HINT = 'write it as text: "order_id bigint, amount decimal(10,2), placed_at timestamp"'
_PYTHON_TYPES: dict[object, str] = {
    int: "bigint",
    float: "double",
    str: "string",
    bool: "boolean",
    bytes: "binary",
    datetime.datetime: "timestamp",
    datetime.date: "date",
}


def as_ddl(schema: object) -> str | pa.Schema:
    """The schema as DDL text, or itself if it is an Arrow schema."""
    match schema:
        case str() | pa.Schema():
            return schema
        case Mapping():
            return _join_columns(schema.items())
        case list() | tuple() if schema and all(isinstance(column, str) for column in schema):
            return ", ".join(schema)
        case list() | tuple() if all(isinstance(column, list | tuple) and len(column) == 2 for column in schema):
            return _join_columns(schema)
    if type(schema).__module__.startswith("pyspark.sql") and hasattr(schema, "fields"):
        columns = (
            (field.name, field.dataType.simpleString() + ("" if field.nullable else " not null"))
            for field in schema.fields
        )
        return _join_columns(columns)
    raise DeclarationError(f"schema: it is a text of columns and their types; found {schema!r}", hint=_HINT)


def _join_columns(columns: Iterable[tuple[Any, Any]]) -> str:
    return ", ".join(f"`{str(name).replace('`', '``')}` {_type_text(name, type_)}" for name, type_ in columns)


def _type_text(name: object, type_: object) -> str:
    if isinstance(type_, str):
        return type_
    if isinstance(type_, pa.DataType):
        return type_ddl(type_)
    if isinstance(type_, type) and type_ in _PYTHON_TYPES:
        return _PYTHON_TYPES[type_]
    raise DeclarationError(
        f"schema: the type of column {name!r} is a text; found {type_!r}", hint=f'such as {{"{name}": "decimal(10,2)"}}'
    )
