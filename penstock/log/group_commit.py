"""Serving calls together: work that costs about the same for one as for many is done once for all that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Answerable(Protocol):
    """Something that is served: it knows whether that has happened."""

    @property
    def is_answered(self) -> bool: ...


R = TypeVar("R", bound=Answerable)


class _Waiting(Generic[R]):
    """A request whose thread sleeps at its own gate, so that nobody is woken in vain."""

    __slots__ = ("gate", "request", "turn")

    def __init__(self, request: R) -> None:
        self.request = request
        self.gate = threading.Lock()
        self.gate.acquire()
        self.turn = False  # woken not because it is answered, but to serve


class GroupCommit(Generic[R]):
    """Whoever finds nobody serving serves; who comes meanwhile waits, and the first of them serves all of them next.

    `serve` is called by one thread at a time and must answer every request it is given, whatever happens.
    """

    def __init__(self, serve: Callable[[list[R]], None]) -> None:
        self._serve = serve
        self._guard = threading.Lock()
        self._waiting: list[_Waiting[R]] = []
        self._serving = False

    def do(self, request: R) -> None:
        """Return when the request is answered."""
        waiting = _Waiting(request)
        with self._guard:
            self._waiting.append(waiting)
            waiting.turn = not self._serving
            self._serving = True
        if not waiting.turn:
            self._sleep(waiting)
        if waiting.turn:
            self._serve_all()

    def _sleep(self, waiting: _Waiting[R]) -> None:
        try:
            waiting.gate.acquire()
        except BaseException:
            # Interrupted, by Ctrl-C. Our turn, if it has come to that, must not be lost with us.
            with self._guard:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
            if waiting.turn:
                self._next_turn()
            raise

    def _serve_all(self) -> None:
        with self._guard:
            taken, self._waiting = self._waiting, []
        try:
            self._serve([served.request for served in taken])
        finally:
            self._next_turn()
            for served in taken:
                served.gate.release()

    def _next_turn(self) -> None:
        with self._guard:
            first = self._waiting[0] if self._waiting else None
            self._serving = first is not None
            if first is not None:
                first.turn = True
        if first is not None:
            first.gate.release()
