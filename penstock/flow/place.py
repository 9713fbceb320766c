"""Where in the user's program something was declared, so that a mistake in it is told with its file and line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

from penstock.errors import DeclarationError
from penstock.flow.plan import Place

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_GIVEN: ContextVar[tuple[Place, str] | None] = ContextVar("given place", default=None)


@contextmanager
def declared_at(place: Place, detail: str = "") -> Iterator[None]:
    """What the block declares is declared there, whoever calls: a line of a text that is not a Python program.

    The detail stands behind the place in refusals: `"line 3"` of a text that has no file of its own.
    """
    before = _GIVEN.set((place, detail))
    try:
        yield
    finally:
        _GIVEN.reset(before)


class Declaring:
    """`with Declaring("where") as place:` gives the place of the user's call and puts it before every refusal.

    The block of one never holds another: verbs call functions, not other verbs.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.place = caller()

    def __enter__(self) -> Place:
        return self.place

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DeclarationError):
            found = error.message.removeprefix(f"{self.what}: ")
            raise DeclarationError(f"{located(self.place)}: {self.what}: {found}", hint=error.hint) from error.__cause__


def located(place: Place) -> str:
    """A place as a refusal begins with it."""
    given = _GIVEN.get()
    return f"{place}: {given[1]}" if given is not None and given[1] else str(place)


def caller() -> Place:
    """The place that was given, or the line of the first frame, from the inside out, that is not Penstock's own."""
    if given := _GIVEN.get():
        return given[0]
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Place(shown(frame.f_code.co_filename), frame.f_lineno)


def shown(file: str) -> str:
    """The path as the user would type it: relative where the file is below the current folder."""
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # the current folder is gone, or on another drive
        return file
    return file if below.startswith(os.pardir) or not os.path.isabs(file) else below
