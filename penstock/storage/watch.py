"""Waiting for files to change: how a reader at the end of a topic sleeps until any process appends.

On Linux this is inotify, called through ctypes because the standard library has no binding. Where inotify is missing or
its instances are used up, waiting falls back to polling every few milliseconds.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

IN_MODIFY = 0x2
IN_MOVED_TO = 0x80
POLL_SECONDS = 0.005


class Watch:
    """Waits until one of several files is written to. Changes between two waits are not lost.

    With `events=IN_MOVED_TO` the paths are folders, and a change is a file that is moved into one of them.
    """

    def __init__(self, paths: Sequence[Path], *, events: int = IN_MODIFY) -> None:
        self._paths = list(paths)
        self._descriptor = _inotify(self._paths, events)
        self._seen = [] if self._descriptor is not None else self._times()

    def wait(self, timeout: float) -> bool:
        """Return True as soon as something has changed, False after `timeout` seconds, which may be infinite."""
        if self._descriptor is None:
            return self._poll_until(timeout)
        # Not `select`: it refuses descriptors from 1,024 up, and a process with many open files has those.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        ready = poll.poll(None if math.isinf(timeout) else math.ceil(timeout * 1000))
        if ready:
            os.read(self._descriptor, 65536)
        return bool(ready)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _times(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self._paths]

    def _poll_until(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while (times := self._times()) == self._seen:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        self._seen = times
        return True


def _inotify(paths: Sequence[Path], events: int) -> int | None:
    """A descriptor that becomes readable when one of the events happens to one of the files; None without inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    descriptor: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        return None
    add: Callable[[int, bytes, int], int] = libc.inotify_add_watch
    if all(add(descriptor, os.fsencode(path), events) >= 0 for path in paths):
        return descriptor
    os.close(descriptor)
    return None
