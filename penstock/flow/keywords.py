"""Keyword arguments that a function does not have: refused with what to write instead, not with Python's TypeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from penstock.errors import DeclarationError
from penstock.flow.location import Declaring
from penstock.suggest import closest

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
AnyClass = TypeVar("AnyClass", bound=type)


def refuse_unknown_keywords(
    hints: Mapping[str, str],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Have a function refuse keywords that it does not have. `hints` are for names that users may expect."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        known = list(inspect.signature(function).parameters)

        @wraps(function)
        def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if unknown := [name for name in kwargs if name not in known]:
                names = [value for value in args if isinstance(value, str)]
                with Declaring(" ".join([function.__name__, *map(repr, names[:1])])):
                    raise _unknown_keyword_error(unknown[0], known, hints)
            return function(*args, **kwargs)

        return checked

    return decorate


def refuse_unknown_fields(hints: Mapping[str, str]) -> Callable[[AnyClass], AnyClass]:
    """Have a dataclass refuse fields that it does not have, in the same way."""

    def decorate(cls: AnyClass) -> AnyClass:
        initialise: Callable[..., None] = cls.__init__  # type: ignore[misc]  # the one that `dataclass` has made
        known = [name for name in inspect.signature(initialise).parameters if name != "self"]

        @wraps(initialise)
        def checked(self: object, *args: Any, **kwargs: Any) -> None:
            if unknown := [name for name in kwargs if name not in known]:
                with Declaring(cls.__name__):
                    raise _unknown_keyword_error(unknown[0], known, hints)
            initialise(self, *args, **kwargs)

        cls.__init__ = checked  # type: ignore[misc]
        return cls

    return decorate


def _unknown_keyword_error(name: str, known: list[str], hints: Mapping[str, str]) -> DeclarationError:
    listed = ", ".join(each for each in known if each not in ("self", "name"))
    hint = hints.get(name) or closest(name, known)
    return DeclarationError(f"there is no parameter '{name}'; there are {listed}", hint=hint)
