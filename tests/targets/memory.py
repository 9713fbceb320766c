"""A target in memory that cannot take back what it wrote, for tests: rows are sent, as by a webhook, and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.contracts import Changes, Destination, TargetStatus
from penstock.errors import DeclarationError, FencedError, UnavailableError

Row = dict[str, object]


@dataclass
class Memory:
    """What outlives instances: who writes, the last epoch, and all rows that were ever sent, by sink."""

    token: int = 0
    epoch: int = 0
    sent: dict[str, list[Row]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    fails: Literal["before", "after"] | None = None  # the next epoch, before or after it is applied

    def destinations(self) -> dict[str, Destination]:
        return {name: Destination(self.ids[name], is_empty=not rows) for name, rows in self.sent.items()}


class MemoryTarget:
    """A `Target` that `CannotTakeBack`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._token = 0

    def take_over(self, app: str, token: int) -> int:
        if token <= self._memory.token:
            raise FencedError(f"app '{app}': instance {token} was replaced by instance {self._memory.token}")
        self._memory.token = self._token = token
        return self._memory.epoch

    def prepare(self, sinks: Iterable[str]) -> None:
        for name in sinks:
            if name not in self._memory.sent:
                self._memory.sent[name] = []
                self._memory.ids[name] = f"{name} since instance {self._token}"

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        memory = self._memory
        if self._token != memory.token:
            raise FencedError(f"instance {self._token} was replaced by instance {memory.token}")
        if epoch <= memory.epoch:
            return False
        self._fail("before")
        for name in changes:
            if name not in memory.sent:
                raise DeclarationError(f"sink '{name}': it is not known here")
        rows = {name: [row for part in parts for row in _rows(name, part)] for name, parts in changes.items()}
        for name, new in rows.items():
            memory.sent[name].extend(new)
        memory.epoch = epoch
        self._fail("after")
        return True

    def _fail(self, when: str) -> None:
        if self._memory.fails == when:
            self._memory.fails = None
            raise UnavailableError("nobody answers")

    def close(self) -> None:
        pass

    def last_epoch(self) -> int:
        return self._memory.epoch

    def destinations(self) -> Mapping[str, Destination]:
        return self._memory.destinations()


def _rows(name: str, part: Changes) -> Iterable[Row]:
    for row, weight in zip(part.rows.to_pylist(), part.weights.to_pylist(), strict=True):
        count = int(weight or 0)
        assert count >= 0, f"sink '{name}': a row cannot be taken back"
        yield from [row] * count


# -- by URL -----------------------------------------------------------------------------------------------------------

MEMORIES: dict[str, Memory] = {}


def check_url(url: str) -> None:
    pass


def open_target(url: str) -> MemoryTarget:
    return MemoryTarget(MEMORIES.setdefault(url, Memory()))


def target_status(url: str, app: str) -> TargetStatus:
    memory = MEMORIES.get(url, Memory())
    return TargetStatus(memory.epoch, destinations=memory.destinations())
