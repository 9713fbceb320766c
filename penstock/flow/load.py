"""Runs a user's program to see what it declares."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from penstock.errors import DeclarationError, PenstockError

# The functions of a module that is in nobody's sys.modules are sent to Spark's workers as they are, not by name: the
# workers could not import it. `__main__` would do too, but then the program would think that it was started.
MODULE = "__penstock_app__"

Found = TypeVar("Found")


def declared(path: Path, kind: type[Found]) -> dict[str, Found]:
    """Run the file, with its folder on sys.path, and return what it has of this kind, by the names of variables.

    What is found under several names comes once, under the first of them.
    """
    found: dict[str, Found] = {}
    for name, value in _run(path).items():
        if isinstance(value, kind) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _run(path: Path) -> dict[str, object]:
    source = read_program(path)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        raise _told(path, error) from error
    finally:
        del sys.modules[MODULE]
    return dict(module.__dict__)


def read_program(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DeclarationError(f"{path}: there is no such file") from None
    except OSError as error:
        raise DeclarationError(f"{path}: it cannot be read; {error.strerror}") from None


def _told(path: Path, error: BaseException) -> DeclarationError:
    """The user's mistake with the user's line: the innermost one in the file itself."""
    what = str(error).strip()
    described = f"{type(error).__name__}: {what}" if what else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return DeclarationError(f"{path}:{error.lineno}: {type(error).__name__}: {error.msg}")
    if isinstance(error, SystemExit):
        described = "the program ended itself"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    return DeclarationError(f"{where}: {described}", hint="run it again with --debug to see where it comes from")
