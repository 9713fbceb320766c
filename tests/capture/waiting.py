"""Waiting for processes and threads in tests, on conditions with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 120.0


def wait_until(condition: Callable[[], bool], what: str, *, while_: Callable[[], bool] = lambda: True) -> None:
    """Return once the condition is true. `while_`: what must stay true for it to become so."""
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while not condition():
        assert while_(), f"nothing is left to wait for: {what}"
        assert time.monotonic() < deadline, f"not within {SECONDS:.0f} seconds: {what}"
        pause.wait(0.05)


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
