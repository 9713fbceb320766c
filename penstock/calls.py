"""What public functions do for whoever calls them: wrong arguments are answered in a sentence, tracebacks are short.

Python answers a wrong argument with a TypeError, which cannot know what was meant. A call that fails in this way is
compared with the signature of the function, and refused with a DeclarationError. Other calls only pay for one frame.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, GeneratorType
from typing import Any, ParamSpec, TypeVar, cast

from penstock.errors import DEBUG, DeclarationError, PenstockError
from penstock.suggest import closest
from penstock.uncaught import show_plainly_if_uncaught

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
AnyClass = TypeVar("AnyClass", bound=type)
Hints = Mapping[str, str]
"""By a keyword that a function does not have and users may expect: what to write instead."""

Locate = Callable[[str], str]
"""Puts the place of the user's call before what is called: `top` becomes `shop.py:7: top`."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def answer_call(
    hints: Hints | None = None, *, locate: Locate = str
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Have a function answer wrong arguments, and give the errors of Penstock a short traceback."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return _answering(function, function.__name__, hints or {}, locate, function.__doc__)

    return decorate


def answer_methods(hints: Mapping[str, Hints] | None = None, *, locate: Locate = str) -> Callable[[AnyClass], AnyClass]:
    """Have the public methods of a class do the same, and its constructor. `hints` are by the name of the method.

    The hints for `__init__` are those of the constructor.
    """

    def decorate(cls: AnyClass) -> AnyClass:
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _answering(method, name, (hints or {}).get(name, {}), locate, method.__doc__))
        return answer_constructor((hints or {}).get("__init__"), locate=locate)(cls)

    return decorate


def answer_constructor(hints: Hints | None = None, *, locate: Locate = str) -> Callable[[AnyClass], AnyClass]:
    """Have only the constructor of a class do the same: for a class of plain data, whose methods nobody gets wrong."""

    def decorate(cls: AnyClass) -> AnyClass:
        if "__init__" in vars(cls):
            constructor = _answering(vars(cls)["__init__"], cls.__name__, hints or {}, locate, cls.__doc__)
            cls.__init__ = constructor  # type: ignore[misc]
        return cls

    return decorate


def _answering(
    function: Callable[Parameters, Result], name: str, hints: Hints, locate: Locate, doc: str | None
) -> Callable[Parameters, Result]:
    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            result = function(*args, **kwargs)
            return cast(Result, _iterate(result)) if isinstance(result, GeneratorType) else result
        except TypeError as error:
            # The traceback of a call that never began ends here: it was the arguments.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            found = _mistake(function, args, kwargs, hints, _example(name, doc))
            show_plainly_if_uncaught()
            raise error if found is None else _located(found, function, name, args, locate) from None
        except PenstockError as error:
            show_plainly_if_uncaught()
            if os.environ.get(DEBUG) or _is_ours(sys._getframe(1).f_globals.get("__name__")):
                raise
            error.__suppress_context__ = True
            # The same error, without the frames below this one. The line is part of what users see.
            raise error.with_traceback(None)  # noqa: B904

    return call


@contextmanager
def whole_tracebacks() -> Iterator[None]:
    """Leave tracebacks as they are, here and in processes that are started here, as PENSTOCK_DEBUG=1 does."""
    before = os.environ.get(DEBUG)
    os.environ[DEBUG] = "1"
    try:
        yield
    finally:
        os.environ.pop(DEBUG) if before is None else os.environ.update({DEBUG: before})


def _iterate(values: Iterable[object]) -> Iterator[object]:
    try:
        yield from values
    except PenstockError:
        show_plainly_if_uncaught()
        raise


def _is_ours(module: object) -> bool:
    return str(module).partition(".")[0] == "penstock"


# -- what is wrong with a call ----------------------------------------------------------------------------------------


def _mistake(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    hints: Hints,
    example: str | None,
) -> DeclarationError | None:
    """The first thing that is wrong with the arguments, in the order in which a reader would see it."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    named = [each.name for each in parameters if each.kind in _NAMED and each.name != "self"]
    required = [each.name for each in parameters if each.default is each.empty and each.name in (*positional, *named)]
    missing = [name for name in required if name not in positional[: len(args)] and name not in kwargs]
    if not _has(parameters, inspect.Parameter.VAR_KEYWORD):
        for keyword in kwargs:
            if keyword not in named:
                others = [name for name in named if name not in positional[: len(args)]]
                return _unknown_keyword(keyword, others, hints, example)
    if len(args) > len(positional) and not _has(parameters, inspect.Parameter.VAR_POSITIONAL):
        by_name = [name for name in named if name not in positional]
        most = len(positional) - (positional[:1] == ["self"])
        return _too_many(args[len(positional) :], most, [name for name in by_name if name in missing], by_name, example)
    for keyword in kwargs:
        if keyword in positional[: len(args)]:
            earlier = args[positional.index(keyword)]
            return DeclarationError(f"'{keyword}' is given twice; found {earlier!r} and {kwargs[keyword]!r}")
    if missing:
        return DeclarationError(f"{_listed(missing)} {_is_or_are(missing)} missing", hint=example)
    return None


def _located(
    found: DeclarationError, function: Callable[..., object], name: str, args: Sequence[object], locate: Locate
) -> DeclarationError:
    """The error with its place, and with the name of what is declared: `view 'revenue'`."""
    named = dict(zip(inspect.signature(function).parameters, args, strict=False)).get("name")
    if isinstance(named, str):
        name = f"{name} '{named}'"
    return DeclarationError(f"{locate(name)}: {found.message}", hint=found.hint)


def _unknown_keyword(keyword: str, named: Sequence[str], hints: Hints, example: str | None) -> DeclarationError:
    known = f"there {_is_or_are(named)} {', '.join(named)}" if named else "all arguments are given without a name"
    hint = hints.get(keyword) or closest(keyword, named) or example
    return DeclarationError(f"there is no parameter '{keyword}'; {known}", hint=hint)


def _too_many(
    extra: Sequence[object], most: int, missing: Sequence[str], by_name: Sequence[str], example: str | None
) -> DeclarationError:
    """`most` arguments are taken without a name; those that are `by_name` have one, and of them some are `missing`."""
    if missing:
        value = f'"{extra[0]}"' if isinstance(extra[0], str) else "..."
        return DeclarationError(
            f"'{missing[0]}' is given by its name; found {extra[0]!r}", hint=f"write {missing[0]}={value}"
        )
    if by_name:
        return DeclarationError(
            f"{_listed(by_name)} {_is_or_are(by_name)} given by name; found {extra[0]!r} without one", hint=example
        )
    count = "no argument" if most == 0 else "one argument" if most == 1 else f"{most} arguments"
    return DeclarationError(f"it takes {count}; found {most + len(extra)}", hint=example)


def _has(parameters: Iterable[inspect.Parameter], kind: Any) -> bool:
    return any(each.kind is kind for each in parameters)


def _listed(names: Sequence[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _is_or_are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _example(name: str, doc: str | None) -> str | None:
    """The first call of a function in its docstring, as a hint."""
    found = re.search(rf"`([^`]*\b{re.escape(name)}\([^`]*)`", doc or "")
    return f"for example: {found[1]}" if found else None
