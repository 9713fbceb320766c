"""Which instances of an app are running: each has a file of its own and holds a lock on it until its process ends.

The lock is the truth: the kernel releases it however the process ends, so a file without a lock is of an instance that
has died. An instance that was replaced runs, and shows here, until it notices.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.storage.document import decode_document, encode_document
from penstock.storage.files import disk_errors

INSTANCES_DIRECTORY = "instances"
_NAME = re.compile(r"(\d+)\.json")


@dataclass(frozen=True, slots=True)
class RunningInstance:
    """A running instance: its token, its process on a host, and since when (microseconds since 1970)."""

    token: int
    host: str
    process: int
    since: int

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"process {self.process}{where}"


class InstanceMark:
    """Shows that an instance is running, until `close` is called or the process ends."""

    def __init__(self, directory: Path, app: str, token: int, *, since: int) -> None:
        self._path = directory / INSTANCES_DIRECTORY / f"{token}.json"
        content = {"token": token, "host": socket.gethostname(), "process": os.getpid(), "since": since}
        with disk_errors(f"app '{app}'"):
            self._path.parent.mkdir(exist_ok=True)
            _remove_marks_of_the_dead(self._path.parent, before=token)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            os.write(self._descriptor, encode_document(content))

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def running_instances(directory: Path) -> list[RunningInstance]:
    """The running instances of the app in this folder, the newest last. Only the newest one can commit."""
    found = (_read_mark(path) for path in _marks(directory / INSTANCES_DIRECTORY) if _is_locked(path))
    return sorted((instance for instance in found if instance is not None), key=lambda instance: instance.token)


def _marks(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), disk_errors(str(folder), but=FileNotFoundError):
        yield from (folder / name for name in sorted(os.listdir(folder)) if _NAME.fullmatch(name))


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read_mark(path: Path) -> RunningInstance | None:
    """The content of a file; None if the instance has just ended, or is just starting."""
    try:
        content = decode_document(path.read_bytes(), path, what="running instance")
        return RunningInstance(**content)
    except (FileNotFoundError, TypeError, PenstockError):
        return None


def _remove_marks_of_the_dead(folder: Path, *, before: int) -> None:
    for path in _marks(folder):
        if int(path.stem) < before and not _is_locked(path):
            path.unlink(missing_ok=True)
