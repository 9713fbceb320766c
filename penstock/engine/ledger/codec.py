"""Records as JSON and back: the only module that knows how plans, commits and savepoints are stored.

A record is a frozen dataclass, and its JSON is an object with its fields; the types of the fields define the rest. JSON
has only text as keys and no tuples, so keys that are numbers are converted. What does not fit the types is damage. The
format has a number (`LEDGER_FORMAT`) and is described in docs/reference/app-folder.md: a record of another shape is a
new format.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from penstock.storage.document import Content

LEDGER_FORMAT = 4
# In format 3 plans and commits have no gaps.
READABLE_FORMATS = (3, LEDGER_FORMAT)

Record = TypeVar("Record")
_Convert = Callable[[Any], Any]
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,4000}")


class UnfitError(ValueError):
    """A JSON document does not fit its record."""


def encode(record: object) -> Content:
    """A record as JSON, equal to what json.loads returns for it."""
    content: Content = _encoder(cast(Hashable, type(record)))(record)
    return content


def decode(kind: type[Record], content: object) -> Record:
    """The record of a JSON document; UnfitError if it does not fit."""
    record: Record = _decoder(cast(Hashable, kind))(content)
    return record


@cache
def _encoder(type_: Any) -> _Convert:
    """The function that converts values of a type to JSON."""
    if is_dataclass(type_):
        hints = get_type_hints(type_)
        parts = [(field.name, _encoder(hints[field.name])) for field in fields(type_)]
        return lambda value: {name: convert(getattr(value, name)) for name, convert in parts}
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is tuple:
        element = _encoder(arguments[0])
        return lambda value: [element(item) for item in value]
    if origin in (dict, Mapping):
        element = _encoder(arguments[1])
        return lambda value: {str(key): element(item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        inner = _encoder(_optional_type(arguments))
        return lambda value: None if value is None else inner(value)
    return lambda value: value


@cache
def _decoder(type_: Any) -> _Convert:
    """The function that converts JSON to values of a type."""
    if is_dataclass(type_):
        return _record_decoder(type_)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is tuple:
        element = _decoder(arguments[0])
        return lambda value: tuple(element(item) for item in _expect_type(value, list))
    if origin in (dict, Mapping):
        key, element = arguments[0], _decoder(arguments[1])
        return lambda value: {_key(key, name): element(item) for name, item in _expect_type(value, dict).items()}
    if origin in (Union, types.UnionType):
        inner = _decoder(_optional_type(arguments))
        return lambda value: None if value is None else inner(value)
    if origin is Literal:
        return lambda value: _expect_one_of(value, arguments)
    return lambda value: _expect_type(value, type_)


def _record_decoder(kind: Any) -> _Convert:
    hints = get_type_hints(kind)
    parts = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    required = {
        field_.name for field_ in fields(kind) if field_.default is MISSING and field_.default_factory is MISSING
    }

    def convert(value: Any) -> Any:
        values = _expect_type(value, dict)
        if not required <= values.keys() <= parts.keys():
            raise UnfitError(f"{kind.__name__}: found the fields {', '.join(sorted(values))}")
        return kind(**{name: parts[name](field_) for name, field_ in values.items()})

    return convert


def _optional_type(arguments: tuple[Any, ...]) -> Any:
    (inner,) = (argument for argument in arguments if argument is not type(None))
    return inner


def _expect_type(value: Any, type_: Any) -> Any:
    if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
        raise UnfitError(f"found {type(value).__name__} where {type_.__name__} belongs")
    return value


def _expect_one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise UnfitError(f"found {value!r} where one of {', '.join(map(str, allowed))} belongs")
    return value


def _key(type_: Any, text: str) -> Any:
    if type_ is not int:
        return text
    if not _NUMBER.fullmatch(text):  # nor '01': two keys must not become one
        raise UnfitError(f"found the key '{text}' where a number belongs")
    return int(text)
