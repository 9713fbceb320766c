"""Ctrl-C and SIGTERM: what they end, and deferring Ctrl-C while something is stored."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TerminatedError(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, it passes through code that catches every Exception."""


@contextmanager
def raise_when_terminated() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that the terminal is left in order and files are closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_by_signal(number: int) -> None:
    """End this process as the signal would have: shells and supervisors see that it was stopped, and did not fail."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Let the block finish before Ctrl-C ends the program, so that it is known what was stored.

    Pressing Ctrl-C twice ends it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
