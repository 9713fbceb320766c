"""How the conformance suite opens each log. To test another kind of log, add it to WORLDS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path

from penstock.contracts import Log
from penstock.log import Log as EmbeddedLog
from penstock.testing import MemoryLog

BEGIN = datetime(2024, 5, 1, 12, tzinfo=UTC)


class World(ABC):
    """A log that has no topics yet, on a clock that the test moves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = BEGIN
        self.log = self.begin()

    @abstractmethod
    def begin(self) -> Log:
        """The log, opened for the first time."""

    def clock(self) -> float:
        return self.now.timestamp()

    def close(self) -> None:
        self.log.close()


class EmbeddedWorld(World):
    def begin(self) -> Log:
        return EmbeddedLog(self.path / "a log", clock=self.clock)


class MemoryWorld(World):
    def begin(self) -> Log:
        return MemoryLog(clock=self.clock)


WORLDS: list[type[World]] = [EmbeddedWorld, MemoryWorld]
