"""Where in the user's program something is declared, so that an error about it names the file and the line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

from penstock.errors import DeclarationError
from penstock.flow.plan import Location

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
# The name that Jupyter gives the code of a cell.
_NOTEBOOK = re.compile(r"/ipykernel_\d+/\d+\.py$|^<ipython-input-")
_OVERRIDE: ContextVar[tuple[Location, str] | None] = ContextVar("location override", default=None)


@contextmanager
def override_location(location: Location, detail: str = "") -> Iterator[None]:
    """Give everything that the block declares this location, whoever the caller is.

    It is for texts that are not Python programs. `detail` follows the location in errors: `"line 3"` of a text that
    has no file of its own.
    """
    reset_token = _OVERRIDE.set((location, detail))
    try:
        yield
    finally:
        _OVERRIDE.reset(reset_token)


class Declaring:
    """`with Declaring("where") as location:` gives the location of the user's call and prefixes errors with it.

    The blocks are never nested: verbs call functions, not other verbs.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.location = caller_location()

    def __enter__(self) -> Location:
        return self.location

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DeclarationError):
            message = error.message.removeprefix(f"{self.what}: ")
            prefix = f"{_error_prefix(self.location)}: {self.what}"
            raise DeclarationError(f"{prefix}: {message}", hint=error.hint) from error.__cause__


def located(what: str) -> str:
    """The place of the user's call and what is declared there, as errors begin with it."""
    return f"{_error_prefix(caller_location())}: {what}"


def _error_prefix(location: Location) -> str:
    """A location, as errors begin with it."""
    override = _OVERRIDE.get()
    return f"{location}: {override[1]}" if override is not None and override[1] else str(location)


def caller_location() -> Location:
    """The line of the innermost frame that is not Penstock's own, unless `override_location` says otherwise."""
    if override := _OVERRIDE.get():
        return override[0]
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(display_path(frame.f_code.co_filename), frame.f_lineno)


def display_path(file: str) -> str:
    """The path as the user would type it: relative if the file is below the current folder."""
    if _NOTEBOOK.search(file):
        return "notebook cell"
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the current folder is gone, or on another drive
        return file
    return file if relative.startswith(os.pardir) or not os.path.isabs(file) else relative
