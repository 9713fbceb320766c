"""What every command has: `--debug`, errors told in two lines, and a quiet end when nobody reads on."""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Annotated

import typer

from penstock.cli.output import tell
from penstock.errors import PenstockError

Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="PENSTOCK_DEBUG", help="Show where in the program an error comes from."),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: it gets the option `--debug`, and its errors become lines on stderr and status 1."""
    signature = inspect.signature(function, eval_str=True)

    @wraps(function)
    def run(*, debug: bool = False, **options: object) -> None:
        try:
            function(**options)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except BrokenPipeError:
            _stop_writing()
        except Exception as error:  # noqa: BLE001 - the last place where an error can be told in the user's words
            report(error, debug=debug)
            raise typer.Exit(1) from None

    option = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    # Rich would break lines where the docstring does; a paragraph in one line is broken where the terminal ends.
    run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return run


def report(error: Exception, *, debug: bool) -> None:
    """Tell an error on stderr: what is wrong, and what to do next."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, PenstockError):
        tell(f"error: {error.message}")
        if error.hint:
            tell(f"hint: {error.hint}")
        return
    what = str(error).strip().partition("\n")[0]
    tell(f"error: unexpected {type(error).__name__}" + (f": {what}" if what else ""))
    if not debug:
        tell("hint: run it again with --debug to see where it comes from")


def _stop_writing() -> None:
    """The reader of our output, such as `head`, has gone. Python would complain when it flushes stdout at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
