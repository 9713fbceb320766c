"""What the types of PostgreSQL become, and the layout of captured tables. No I/O.

Types that Arrow and Spark have become theirs. All others become the text that PostgreSQL shows, which loses nothing.
conversion.py turns the texts of values into values of these types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.contracts import COMMIT_TIME
from penstock.errors import DeclarationError

SESSION_SETTINGS: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "search_path": "pg_catalog",  # names of tables in columns of type regclass are always shown with their schema
}
"""The settings of every session that reads values, for COPY and for replication: the form of texts depends on them."""

TYPES_QUERY = """
SELECT type.oid, type.typname, type.typtype, coalesce(item.oid, type.typbasetype), type.typtypmod,
       coalesce(item.typdelim, ',')
FROM pg_catalog.pg_type AS type LEFT JOIN pg_catalog.pg_type AS item ON item.typarray = type.oid
""".strip()
"""Reads all types of a database, for `catalog_types`."""

Column: TypeAlias = "pa.Array[Any]"
Kind: TypeAlias = Literal["base", "array", "domain", "enum", "composite", "range", "multirange", "pseudo", "unknown"]

_KINDS: dict[str, Kind] = {
    "b": "base",
    "c": "composite",
    "d": "domain",
    "e": "enum",
    "m": "multirange",
    "p": "pseudo",
    "r": "range",
}

_ARROW_TYPES: dict[int, pa.DataType] = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    26: pa.int64(),  # oid, which is unsigned
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
_NUMERIC = 1700


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A type of PostgreSQL. `element` is what an array is an array of, or what a domain is a domain over."""

    oid: int
    name: str
    modifier: int = -1
    kind: Kind = "base"
    element: PostgresType | None = None
    delimiter: str = ","  # between the items of an array


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """A captured column: what it is in PostgreSQL, and in Arrow. `column_layout` makes it."""

    name: str
    type: PostgresType
    arrow: pa.DataType
    is_key: bool = False


ROW_ID = "row_id"
"""The key of tables that have none: a hash over all values of the row, so that equal rows are one row."""

ROW_ID_COLUMN = ColumnLayout(ROW_ID, PostgresType(0, ROW_ID, kind="pseudo"), pa.string(), is_key=True)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The captured columns of a table, in order, and its key. Errors show the `name`, such as shop.orders."""

    name: str
    columns: tuple[ColumnLayout, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        reserved = [name for name in names if name.lower() == COMMIT_TIME]
        if reserved or len(set(names)) < len(names):
            found = (reserved or [name for name in names if names.count(name) > 1])[0]
            raise DeclarationError(
                f"table {self.name}: a capture adds the columns '{COMMIT_TIME}', and '{ROW_ID}' where there is no key; "
                f"the table has '{found}' already",
                hint="name the columns to capture, without that one, or rename it",
            )

    @property
    def has_row_id(self) -> bool:
        """Whether the key is a hash over the row, because the table has no key of its own."""
        return ROW_ID_COLUMN in self.columns

    @property
    def table_columns(self) -> tuple[ColumnLayout, ...]:
        """The columns that the table itself has, in the order in which they are copied and hashed."""
        return tuple(column for column in self.columns if column != ROW_ID_COLUMN)

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are given to the log, with `COMMIT_TIME` at the end."""
        fields = [pa.field(column.name, column.arrow, nullable=not column.is_key) for column in self.columns]
        return pa.schema([*fields, pa.field(COMMIT_TIME, pa.timestamp("us", "UTC"))])


def column_layout(name: str, type_: PostgresType, *, is_key: bool = False, as_text: bool = False) -> ColumnLayout:
    """The layout of one column. `as_text`: keep it as the text that PostgreSQL shows, whatever its type."""
    return ColumnLayout(name, type_, pa.string() if as_text else arrow_type(type_), is_key)


def table_layout(name: str, columns: Iterable[ColumnLayout]) -> TableLayout:
    """The layout of a table. If no column belongs to a key, all of them do: the key is `ROW_ID`, the first column."""
    columns = tuple(columns)
    key = tuple(column.name for column in columns if column.is_key)
    if key:
        return TableLayout(name, columns, key)
    return TableLayout(name, (ROW_ID_COLUMN, *columns), (ROW_ID,))


def arrow_type(type_: PostgresType) -> pa.DataType:
    """The Arrow type that holds all values of a type but those beyond its limits, or string."""
    if type_.kind == "domain" and type_.element is not None:
        return arrow_type(type_.element)
    if type_.kind == "array" and type_.element is not None:
        item = arrow_type(type_.element)
        return pa.string() if pa.types.is_list(item) else pa.list_(item)
    if type_.oid == _NUMERIC:
        return _decimal_type(type_.modifier)
    return _ARROW_TYPES.get(type_.oid, pa.string())


def _decimal_type(modifier: int) -> pa.DataType:
    """That of numeric(precision, scale), if Spark has it; a numeric without them has no limits at all."""
    if modifier < 4:
        return pa.string()
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400  # eleven bits with a sign
    if 1 <= precision <= 38 and 0 <= scale <= precision:
        return pa.decimal128(precision, scale)
    return pa.string()


# -- the catalogue of a database --------------------------------------------------------------------------------------


class CatalogType(NamedTuple):
    """A row of `TYPES_QUERY`. `element`: the items of an array, or the type under a domain, which has the modifier."""

    oid: int
    name: str
    letter: str
    element: int
    modifier: int
    delimiter: str


def catalog_types(rows: Iterable[tuple[int, str, str, int, int, str]]) -> dict[int, CatalogType]:
    """The types of a database by their oid, from the rows of `TYPES_QUERY`."""
    return {row[0]: CatalogType(*row) for row in rows}


def resolve_type(types: Mapping[int, CatalogType], oid: int, modifier: int = -1) -> PostgresType:
    """The type with this oid and the modifier that a column (pg_attribute.atttypmod) has for it."""
    found = types.get(oid)
    if found is None:
        return PostgresType(oid, f"type {oid}", modifier, "unknown")
    if found.letter == "d":
        element = resolve_type(types, found.element, found.modifier)
        return PostgresType(oid, found.name, modifier, "domain", element)
    if found.element:
        element = resolve_type(types, found.element, modifier)
        return PostgresType(oid, found.name, modifier, "array", element, found.delimiter)
    return PostgresType(oid, found.name, modifier, _KINDS.get(found.letter, "unknown"))
