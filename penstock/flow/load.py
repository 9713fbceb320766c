"""Runs a user's program to see what it declares."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from penstock.errors import DeclarationError, PenstockError

# Functions of a module that is not in sys.modules are sent to Spark's workers by value, not by name: the workers could
# not import it. `__main__` would work too, but then the program would believe that it was started as a script. The name
# is part of fingerprints.
MODULE = "__penstock_app__"

Found = TypeVar("Found")


def is_loading() -> bool:
    """Whether a program is being run by `load_declarations` at this moment."""
    return MODULE in sys.modules


def load_declarations(path: Path, kind: type[Found]) -> dict[str, Found]:
    """Run the file, with its folder on sys.path, and return the objects of this kind by the names of their variables.

    An object with several names is returned once, under the first of them.
    """
    found: dict[str, Found] = {}
    for name, value in _run(path).items():
        if isinstance(value, kind) and not any(value is known for known in found.values()):
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
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        raise _describe_error(path, error) from error
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


def _describe_error(path: Path, error: BaseException) -> DeclarationError:
    """The error of the user's program, with the innermost line of the file itself."""
    message = str(error).strip()
    description = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return DeclarationError(f"{path}:{error.lineno}: {type(error).__name__}: {error.msg}")
    if isinstance(error, SystemExit):
        description = "the program called exit"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    if frames and "pyspark" in Path(frames[-1].filename).parts:  # F.col(...) needs a Spark that runs
        return DeclarationError(
            f"{where}: a function of PySpark was called while the app was declared, and Spark is not running then",
            hint='expressions are Spark SQL strings: .where("amount > 3"); PySpark belongs in functions for .map',
        )
    return DeclarationError(f"{where}: {description}", hint="run it again with --debug to see where it comes from")
