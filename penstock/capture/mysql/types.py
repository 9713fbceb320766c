"""Types of columns: as the catalogue and the binary log declare them, and as Arrow has them. Nothing here does I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

WHOLE_NUMBERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
"""Bytes of each type of whole numbers."""

GEOMETRIES = frozenset(
    [
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    ]
)
_TEXTS = frozenset(["char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"])
_BINARIES = frozenset(["varbinary", "tinyblob", "blob", "mediumblob", "longblob"])
_SIGNED: dict[int, pa.DataType] = {1: pa.int8(), 2: pa.int16(), 3: pa.int32(), 4: pa.int32(), 8: pa.int64()}
_UNSIGNED: dict[int, pa.DataType] = {
    1: pa.int16(),
    2: pa.int32(),
    3: pa.int32(),
    4: pa.int64(),
    8: pa.int64(),  # keys are often of this type, and values beyond bigint are rare: those stop the capture
}
_COLUMN_TYPE = re.compile(r"(?P<name>[a-z0-9_]+)\s*(?:\((?P<arguments>.*)\))?(?P<rest>[^()]*)", re.DOTALL)
_LARGEST_DECIMAL = 38


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column. `kind` is its family; what else counts depends on it.

    whole: `width` bytes, `unsigned`. decimal: `width` digits, `scale`. bit: `width` bits. time, datetime, timestamp:
    `scale` digits of a fraction. text, enum, set: `charset`. fixed binary: `width` bytes. unknown: `name` only.
    """

    kind: str
    name: str = ""
    width: int = 0
    scale: int = 0
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        """The type of its values in Arrow."""
        if self.kind == "whole":
            return (_UNSIGNED if self.unsigned else _SIGNED)[self.width]
        if self.kind == "decimal":
            return pa.decimal128(self.width, self.scale) if self.width <= _LARGEST_DECIMAL else pa.string()
        if self.kind == "bit":
            return pa.int64() if self.width < 64 else pa.decimal128(20, 0)
        return _ARROW_TYPES[self.kind]


_ARROW_TYPES: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "year": pa.int32(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "time": pa.string(),
    "text": pa.string(),
    "enum": pa.string(),
    "set": pa.string(),
    "binary": pa.binary(),
    "fixed binary": pa.binary(),
}


def declared_type(column_type: str, charset: str | None) -> ColumnType:
    """The type of a column from its declaration in the catalogue, as in `int(10) unsigned`."""
    match = _COLUMN_TYPE.match(column_type.strip().lower())
    assert match is not None
    name, arguments, rest = match["name"], match["arguments"] or "", match["rest"]
    if "compressed" in column_type.lower().partition("/*")[2]:
        return ColumnType("unknown", f"{name} compressed")
    numbers = [int(part) for part in arguments.split(",") if part.strip().isdigit()]
    first = numbers[0] if numbers else 0
    if name in WHOLE_NUMBERS:
        return ColumnType("whole", width=WHOLE_NUMBERS[name], unsigned="unsigned" in rest)
    if name == "decimal":
        return ColumnType("decimal", width=first, scale=numbers[1] if len(numbers) > 1 else 0)
    if name in ("time", "datetime", "timestamp"):
        return ColumnType(name, scale=first)
    if name in ("float", "double", "year", "date"):
        return ColumnType(name)
    if name in ("enum", "set"):
        return ColumnType(name, charset=charset or "")
    return _type_of_bytes(name, first, charset)


def _type_of_bytes(name: str, length: int, charset: str | None) -> ColumnType:
    if name == "bit":
        return ColumnType("bit", width=length or 1)
    if name in _TEXTS:
        return ColumnType("text", charset=charset or "")
    if name == "binary":
        return ColumnType("fixed binary", width=length or 1)
    return ColumnType("binary") if name in _BINARIES | GEOMETRIES else ColumnType("unknown", name)


def arrow_type(text: str) -> pa.DataType:
    """The Arrow type of which this is the text, as positions have it."""
    if text.startswith("decimal128("):
        digits, scale = text.removeprefix("decimal128(").rstrip(")").split(",")
        return pa.decimal128(int(digits), int(scale))
    known = {str(type_): type_ for type_ in (*_SIGNED.values(), *_ARROW_TYPES.values())}
    return known.get(text, pa.null())


def is_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether every value of a type is one of the other too, so that a topic can follow the change."""
    if before == after:
        return True
    if pa.types.is_signed_integer(before) and pa.types.is_signed_integer(after):
        return before.bit_width <= after.bit_width
    if pa.types.is_floating(before) and pa.types.is_floating(after):
        return before.bit_width <= after.bit_width
    if isinstance(before, pa.Decimal128Type) and isinstance(after, pa.Decimal128Type):
        return bool(before.scale <= after.scale) and bool(
            before.precision - before.scale <= after.precision - after.scale
        )
    return False
