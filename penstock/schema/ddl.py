"""Spark DDL text to an Arrow schema and back: `"id bigint not null, tags array<string>"`.

A small recursive-descent parser, so that declaring a topic needs neither Spark nor a JVM. It knows only types and
syntax; what a topic refuses beyond that (reserved or repeated names) is in arrow.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.suggest import closest

Field: TypeAlias = "pa.Field[pa.DataType]"

COMMENT = b"comment"
"""The key in a field's metadata that holds the text of its `comment '...'`."""

_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SIMPLE_NAMES = {type_: name for name, type_ in _SIMPLE_TYPES.items()}
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
}
_TYPE_NAMES = [*_SIMPLE_TYPES, *_ALIASES, "decimal", "varchar", "char", "array", "map", "struct"]

_TOKEN = re.compile(
    r"""(?P<quoted>`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<word>\w+)
      | (?P<symbol>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse_ddl(text: str) -> pa.Schema:
    """Return the Arrow schema that the text declares. Types and keywords are case-insensitive, names keep their case.

    `name type` and `name: type` mean the same. `varchar(n)` and `char(n)` are strings whose length is not enforced.
    `comment '...'` is kept in the field's metadata. `not null` is for whole columns: inside a struct it is refused.
    A mistake raises DeclarationError with its position, counted from 1.
    """
    return _Parser(text).schema()


def to_ddl(schema: pa.Schema) -> str:
    """Return the text that `parse_ddl` turns back into this schema. Spark reads the same text the same way.

    The schema is one that `parse_schema` returned.
    """
    return ", ".join(f"{_quoted_name(field.name)} {type_ddl(field.type)}{_suffix(field)}" for field in schema)


def type_ddl(type_: pa.DataType) -> str:
    """Return the Spark name of one type of a schema, such as `array<decimal(10,2)>`."""
    if isinstance(type_, pa.Decimal128Type):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, pa.ListType):
        return f"array<{type_ddl(type_.value_type)}>"
    if isinstance(type_, pa.MapType):
        return f"map<{type_ddl(type_.key_type)},{type_ddl(type_.item_type)}>"
    if isinstance(type_, pa.StructType):
        parts = (f"{_quoted_name(field.name)}: {type_ddl(field.type)}{_suffix(field)}" for field in type_)
        return f"struct<{', '.join(parts)}>"
    return _SIMPLE_NAMES[type_]


def comment_of(field: Field) -> str | None:
    """Return the comment of a field, if it has one."""
    comment = (field.metadata or {}).get(COMMENT)
    return None if comment is None else comment.decode(errors="replace")


def _quoted_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _suffix(field: Field) -> str:
    comment = comment_of(field)
    text = "" if field.nullable else " not null"
    if comment is not None:
        escaped = comment.replace("\\", "\\\\").replace("'", "\\'")
        text += f" comment '{escaped}'"
    return text


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise DeclarationError(
                f"schema: unexpected character (at character {at + 1}); found {text[at]!r}",
                hint="put names with other characters than letters, digits and _ in backquotes: `order-id`",
            )
        yield _Token(match.lastgroup or "", match.group(), at + 1)
        at = match.end()
    yield _Token("end", "", len(text) + 1)


class _Parser:
    """Parses one schema. Each method parses one rule of the grammar, starting at the token that `_next` points to."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    def schema(self) -> pa.Schema:
        fields = [self._column()]
        while self._accept(","):
            fields.append(self._column())
        if self._peek().kind != "end":
            raise self._expected_error("',' or the end of the schema", f" after column {fields[-1].name!r}")
        return pa.schema(fields)

    def _column(self) -> Field:
        name = self._name()
        self._accept(":")
        type_ = self._type(name)
        nullable = not self._not_null()
        return pa.field(name, type_, nullable=nullable, metadata=self._comment())

    def _struct_field(self, struct: str) -> Field:
        name = self._name()
        path = f"{struct}.{name}"
        self._accept(":")
        type_ = self._type(path)
        at = self._peek().at
        if self._not_null():
            raise DeclarationError(
                f"schema: only whole columns can be not null; found 'not null' for {path!r} (at character {at})",
                hint="remove it there, or make the field a column of its own",
            )
        return pa.field(name, type_, metadata=self._comment())

    def _name(self) -> str:
        token = self._peek()
        if token.kind == "quoted" and len(token.text) > 2:
            self._next += 1
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word":
            raise self._expected_error("a column name")
        self._next += 1
        return token.text

    def _type(self, column: str) -> pa.DataType:
        token = self._peek()
        if token.kind != "word":
            raise self._expected_error("a type", f" for column {column!r}")
        self._next += 1
        name = _ALIASES.get(token.text.lower(), token.text.lower())
        if name == "decimal":
            return self._decimal(column, token.at)
        if name in ("varchar", "char"):
            self._numbers(column)
            return pa.string()
        if name in ("array", "map", "struct"):
            return self._nested_type(name, column)
        if name not in _SIMPLE_TYPES:
            hint = closest(name, _TYPE_NAMES) or f"the types are: {', '.join(_TYPE_NAMES)}"
            raise DeclarationError(
                f"schema: unknown type {token.text!r} for column {column!r} (at character {token.at})", hint=hint
            )
        return _SIMPLE_TYPES[name]

    def _nested_type(self, name: str, column: str) -> pa.DataType:
        self._expect("<", column)
        type_: pa.DataType
        if name == "array":
            type_ = pa.list_(self._type(column))
        elif name == "map":
            key = self._type(column)
            self._expect(",", column)
            type_ = pa.map_(key, self._type(column))
        else:
            fields = [self._struct_field(column)]
            while self._accept(","):
                fields.append(self._struct_field(column))
            type_ = pa.struct(fields)
        self._expect(">", column)
        return type_

    def _decimal(self, column: str, at: int) -> pa.DataType:
        numbers = self._numbers(column)
        precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
        if len(numbers) > 2 or not 1 <= precision <= 38 or not 0 <= scale <= precision:
            found = ",".join(map(str, numbers))
            raise DeclarationError(
                f"schema: decimal(precision,scale) has a precision from 1 to 38 and a scale from 0 to the precision; "
                f"found decimal({found}) for column {column!r} (at character {at})"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self, column: str) -> tuple[int, ...]:
        """Parse `(10,2)`; empty if there is no parenthesis."""
        if not self._accept("("):
            return ()
        numbers = [self._number(column)]
        while self._accept(","):
            numbers.append(self._number(column))
        self._expect(")", column)
        return tuple(numbers)

    def _number(self, column: str) -> int:
        if not self._peek().text.isdecimal():
            raise self._expected_error("a number", f" for column {column!r}")
        self._next += 1
        return int(self._tokens[self._next - 1].text)

    def _not_null(self) -> bool:
        if not self._accept("not"):
            return False
        if not self._accept("null"):
            raise self._expected_error("'null' after 'not'")
        return True

    def _comment(self) -> dict[bytes, bytes] | None:
        if not self._accept("comment"):
            return None
        token = self._peek()
        if token.kind != "text":
            raise self._expected_error("a quoted text after 'comment'")
        self._next += 1
        return {COMMENT: _unescape(token.text).encode()}

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.kind not in ("word", "symbol") or token.text.lower() != text:
            return False
        self._next += 1
        return True

    def _expect(self, symbol: str, column: str) -> None:
        if not self._accept(symbol):
            raise self._expected_error(repr(symbol), f" for column {column!r}")

    def _expected_error(self, what: str, where: str = "") -> DeclarationError:
        token = self._peek()
        return DeclarationError(f"schema: expected {what}{where} (at character {token.at}); found {token}")


def _unescape(literal: str) -> str:
    quote = literal[0]
    pattern = re.compile(rf"\\(.)|{quote}({quote})", re.DOTALL)
    return pattern.sub(lambda match: match[2] or _ESCAPES.get(match[1], match[1]), literal[1:-1])
