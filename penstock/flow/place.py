"""Where in the user's program something was declared, so that a mistake in it is told with its file and line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from penstock.errors import DeclarationError
from penstock.flow.plan import Place

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep


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
            raise DeclarationError(f"{self.place}: {self.what}: {found}", hint=error.hint) from error.__cause__


def caller() -> Place:
    """The line of the first frame, from the inside out, that is not Penstock's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Place(_shown(frame.f_code.co_filename), frame.f_lineno)


def _shown(file: str) -> str:
    """The path as the user would type it: relative where the file is below the current folder."""
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # the current folder is gone, or on another drive
        return file
    return file if below.startswith(os.pardir) or not os.path.isabs(file) else below
