"""The library of `shim.c`: building it, and telling a process which of its file operations goes wrong."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLAN = "PENSTOCK_FAULT"
REPORT = "PENSTOCK_FAULT_REPORT"

# Everything that changes what a later process finds on disk.
EVERY_CALL = "fsync,fdatasync,rename,unlink,rmdir,mkdir,ftruncate,pwritev,pwrite"
MISSING = "needs a C compiler: apt-get install gcc libc6-dev"


def build(directory: Path) -> Path | None:
    """Compile the library into `directory`; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(source), "-ldl", "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return library


def plan(action: str, calls: str, nth: int, pattern: str | Path) -> dict[str, str]:
    """The environment in which the n-th of these calls on a path of this pattern goes wrong; see `shim.c`."""
    return {PLAN: f"{action} {calls} {nth} {pattern}"}


@contextmanager
def armed(action: str, calls: str, nth: int, pattern: str | Path) -> Iterator[None]:
    """The same for a block of the process that runs it."""
    os.environ.update(plan(action, calls, nth, pattern))
    try:
        yield
    finally:
        del os.environ[PLAN]


def calls_so_far() -> int:
    """How many calls of this process the plan has matched."""
    counted = ctypes.CDLL(None).fault_calls
    counted.restype = ctypes.c_long
    return int(counted())
