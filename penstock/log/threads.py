"""Threads that take steps beside each other, such as the syncs of several partitions. Started when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

MOST_THREADS = 8


class Threads:
    """Shared by all transactions of an open log. Safe to use from many threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def run(self, steps: Sequence[Callable[[], None]]) -> None:
        """Take all steps, the first in this thread; return when all have ended. Raises what the first has raised."""
        if not steps:
            return
        first, *rest = steps
        waiting = [self._started_pool().submit(step) for step in rest] if rest else []
        try:
            first()
        finally:
            wait(waiting)  # whatever happened: nothing may be under way when the caller undoes it
        for future in waiting:
            future.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _started_pool(self) -> ThreadPoolExecutor:
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="penstock-sync")
            return self._pool
