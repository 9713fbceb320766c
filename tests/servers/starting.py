"""What starting a server takes: a free port, and waiting for what it does, with a deadline."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

WAIT_SECONDS = 120


def wait_until(condition: Callable[[], object], describe: Callable[[], object] = lambda: "") -> None:
    """Wait until a condition holds; after two minutes the test fails with the description."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited {WAIT_SECONDS} s in vain; {describe()}"
        time.sleep(0.02)


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
