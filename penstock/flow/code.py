"""A fingerprint of a function. It changes when its code does, or that of the functions and values it refers to.

It is the same in every process with the same version of Python. It ignores what the function imports from other
packages, and the attributes of objects that are not plain values.
"""

from __future__ import annotations
import __future__

import functools
import hashlib
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from penstock.flow.load import MODULE

DIGITS = 16
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta, PurePath, UUID)


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Sixteen hexadecimal digits for what the function does."""
    return digest(repr(list(_describe_value(function, set()))))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]


def _describe_value(value: object, seen: set[int]) -> Iterator[str]:
    """Texts that are equal for values that mean the same, as far as that can be seen."""
    if value is None or value is Ellipsis or isinstance(value, _PLAIN_TYPES):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, CodeType):
        yield from _describe_code(value, seen)
    elif id(value) in seen:
        yield "again"
    elif isinstance(value, tuple | list | set | frozenset | dict):
        yield from _describe_collection(value, seen | {id(value)})
    elif isinstance(value, FunctionType | MethodType | functools.partial):
        seen.add(id(value))
        yield from _describe_function(value, seen)
    else:
        yield _qualified_name(value)
        called = getattr(type(value), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(called, FunctionType):
            seen.add(id(value))
            yield from _describe_value([called, getattr(value, "__dict__", {})], seen)


def _describe_collection(value: Any, seen: set[int]) -> Iterator[str]:
    parts = [list(_describe_value(part, seen)) for part in (value.items() if isinstance(value, dict) else value)]
    # The order of a set depends on the process.
    yield f"{type(value).__name__} {sorted(parts) if isinstance(value, set | frozenset) else parts}"


def _describe_function(value: FunctionType | MethodType | functools.partial[Any], seen: set[int]) -> Iterator[str]:
    if isinstance(value, functools.partial):
        yield from _describe_value([value.func, value.args, value.keywords], seen)
    elif isinstance(value, MethodType):
        yield from _describe_value(value.__func__, seen)
        yield from _describe_value(getattr(value.__self__, "__dict__", {}), seen)
    else:
        of_program = value.__module__ in ("__main__", MODULE)
        yield from _describe_code(_with_lazy_annotations(value.__code__) if of_program else value.__code__, seen)
        yield from _describe_value([value.__defaults__, value.__kwdefaults__], seen)
        yield from _describe_value([_cell_contents(cell) for cell in value.__closure__ or ()], seen)
        for name in sorted(_names_in(value.__code__)):
            if name in value.__globals__:
                yield name
                yield from _describe_global(value.__globals__[name], value.__module__, seen)


def _describe_global(value: object, module: str, seen: set[int]) -> Iterator[str]:
    """What a name of the function's module refers to. Functions of other modules are only named."""
    if isinstance(value, FunctionType) and value.__module__ != module:
        yield _qualified_name(value)
    else:
        yield from _describe_value(value, seen)


def _describe_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    """The code without its file and lines."""
    yield repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_exceptiontable))
    yield from _describe_value(code.co_consts, seen)


def _with_lazy_annotations(code: CodeType) -> CodeType:
    """The code as if its file imported `annotations` from `__future__`, which says nothing about what it does.

    Programs were compiled like this once, and the states of their functions are found by these fingerprints.
    """
    constants = (_with_lazy_annotations(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_flags=code.co_flags | __future__.annotations.compiler_flag, co_consts=tuple(constants))


def _names_in(code: CodeType) -> set[str]:
    """The names that the code, or code nested in it, looks up outside of itself."""
    inside = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inside)


def _cell_contents(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet: a function that is defined later
        return "empty"


def _qualified_name(value: object) -> str:
    """The name of what cannot be looked into. `python shop.py` and `penstock run shop.py` give it the same one."""
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", "")
    return f"{MODULE if module == '__main__' else module}.{getattr(named, '__qualname__', '')}"
