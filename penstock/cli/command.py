"""What every command has: `--debug`, errors in two lines, and a quiet end when the reader of its output has gone."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Annotated

import typer

from penstock.calls import whole_tracebacks
from penstock.cli.interrupt import TerminatedError, raise_when_terminated
from penstock.cli.output import print_stderr
from penstock.errors import PenstockError

Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="PENSTOCK_DEBUG", help="Show where in the program an error comes from."),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: it gets the option `--debug`, and its errors become text on stderr and status 1."""
    signature = inspect.signature(function, eval_str=True)

    @wraps(function)
    def run(*, debug: bool = False, **options: object) -> None:
        try:
            with raise_when_terminated(), whole_tracebacks() if debug else nullcontext():
                function(**options)
                sys.stdout.flush()
        except KeyboardInterrupt:
            _end_interrupted("interrupted", signal.SIGINT)
        except TerminatedError:
            _end_interrupted("terminated", signal.SIGTERM)
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except BrokenPipeError:
            _stop_writing()
        except Exception as error:  # noqa: BLE001 - the last place where an error can be put in the user's words
            report_error(error, debug=debug)
            raise typer.Exit(1) from None

    option = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    # Rich keeps the line breaks of a docstring; a paragraph in one line is wrapped to the width of the terminal.
    run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return run


def _end_interrupted(what: str, number: int) -> None:
    """One line in place of what the terminal shows for Ctrl-C, and the status that shells give to a signal."""
    print_stderr(f"\r\x1b[K{what}" if sys.stderr.isatty() else what)
    raise typer.Exit(128 + number)


def report_error(error: Exception, *, debug: bool) -> None:
    """Print an error on stderr: what is wrong, and what to do next."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, PenstockError):
        print_stderr(f"error: {error.message}")
        if error.hint:
            print_stderr(f"hint: {error.hint}")
        return
    what = str(error).strip().partition("\n")[0]
    print_stderr(f"error: unexpected {type(error).__name__}" + (f": {what}" if what else ""))
    if not debug:
        print_stderr("hint: run it again with --debug to see where it comes from")


def _stop_writing() -> None:
    """Discard further output. Its reader, such as `head`, has gone; Python would complain when it flushes stdout."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
