"""How an error that nobody catches is shown: the sentence, the hint and the user's line, instead of a traceback.

Python shows errors that end a script with `sys.excepthook`. It is replaced once an error of Penstock is on its way to
the user's code, and only if the program has none of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from linecache import getline
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from penstock.errors import DEBUG, PenstockError

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], None]
"""What `sys.excepthook` may be."""

_PACKAGE = str(Path(__file__).resolve().parent) + os.sep


def show_plainly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What the program ends with; errors that are not of Penstock are shown as Python does."""
    if isinstance(error, PenstockError):
        print_line("\n".join([f"error: {error.message}", *_hint_line(error), *_place_line(error, trace)]))
    else:
        sys.__excepthook__(kind, error, trace)


def show_plainly_if_uncaught(show: Hook = show_plainly) -> None:
    """From now on, show errors of Penstock that nobody catches without a traceback."""
    if sys.excepthook in (sys.__excepthook__, show_plainly) and not os.environ.get(DEBUG):
        sys.excepthook = show


def print_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _hint_line(error: PenstockError) -> Iterator[str]:
    if error.hint:
        yield f"hint: {error.hint}"


def _place_line(error: PenstockError, trace: TracebackType | None) -> Iterator[str]:
    """The user's line that failed, unless the message begins with it."""
    lines = [(frame.f_code.co_filename, number) for frame, number in walk_tb(trace)]
    own_lines = [line for line in lines if _is_the_users(line[0])]
    if own_lines:
        file, number = own_lines[-1]
        if f"{os.path.basename(file)}:{number}: " not in error.message:
            yield f"  at {_shown_path(file)}:{number}: {getline(file, number).strip()}".removesuffix(": ")


def _is_the_users(file: str) -> bool:
    return not file.startswith((_PACKAGE, "<frozen")) and f"{os.sep}site-packages{os.sep}" not in file


def _shown_path(file: str) -> str:
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the current folder is gone
        return file
    return file if relative.startswith(os.pardir) else relative
