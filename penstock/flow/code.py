"""A fingerprint of a function, which changes when its code does: also that of the functions and values it refers to.

It is the same in every process with the same version of Python. What a function gets from imported packages, and the
insides of objects that are not plain values, are not looked at.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

DIGITS = 16
_PLAIN = (bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta, PurePath, UUID)


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Sixteen hexadecimal digits for what the function does."""
    return digest(repr(list(_of_value(function, set()))))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]


def _of_value(value: object, seen: set[int]) -> Iterator[str]:
    """Texts that are equal exactly where the value means the same, as far as it can be looked at."""
    if value is None or value is Ellipsis or isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, CodeType):
        yield from _of_code(value, seen)
    elif id(value) in seen:
        yield "again"
    elif isinstance(value, tuple | list | set | frozenset | dict):
        yield from _of_collection(value, seen | {id(value)})
    elif isinstance(value, FunctionType | MethodType | functools.partial):
        seen.add(id(value))
        yield from _of_function(value, seen)
    else:
        yield _name_of(value)
        called = getattr(type(value), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(called, FunctionType):
            seen.add(id(value))
            yield from _of_value([called, getattr(value, "__dict__", {})], seen)


def _of_collection(value: Any, seen: set[int]) -> Iterator[str]:
    parts = [list(_of_value(part, seen)) for part in (value.items() if isinstance(value, dict) else value)]
    # The order of a set depends on the process.
    yield f"{type(value).__name__} {sorted(parts) if isinstance(value, set | frozenset) else parts}"


def _of_function(value: FunctionType | MethodType | functools.partial[Any], seen: set[int]) -> Iterator[str]:
    if isinstance(value, functools.partial):
        yield from _of_value([value.func, value.args, value.keywords], seen)
    elif isinstance(value, MethodType):
        yield from _of_value(value.__func__, seen)
        yield from _of_value(getattr(value.__self__, "__dict__", {}), seen)
    else:
        yield from _of_code(value.__code__, seen)
        yield from _of_value([value.__defaults__, value.__kwdefaults__], seen)
        yield from _of_value([_contents(cell) for cell in value.__closure__ or ()], seen)
        for name in sorted(_names(value.__code__)):
            if name in value.__globals__:
                yield name
                yield from _of_global(value.__globals__[name], value.__module__, seen)


def _of_global(value: object, module: str, seen: set[int]) -> Iterator[str]:
    """What a name of the function's module stands for. What another module defines is only named."""
    if isinstance(value, FunctionType) and value.__module__ != module:
        yield _name_of(value)
    else:
        yield from _of_value(value, seen)


def _of_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    """The code without its file and lines."""
    yield repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_exceptiontable))
    yield from _of_value(code.co_consts, seen)


def _names(code: CodeType) -> set[str]:
    """The names that the code and the code inside of it looks up outside of itself."""
    inside = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inside)


def _contents(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet: a function that is defined further down
        return "empty"


def _name_of(value: object) -> str:
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
