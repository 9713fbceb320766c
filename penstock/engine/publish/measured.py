"""What publishing an epoch takes, target by target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.contracts import Changes, Target


@dataclass(frozen=True, slots=True)
class Published:
    """What a target was given of an epoch: `rows` that were added or taken away, 0 if it had the epoch before."""

    rows: int
    seconds: float


class Measured:
    """A `Target` around a target, which measures its last epoch. Powers are asked of the target itself."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self._target = target
        self._clock = clock
        self._rows = 0
        self.last = Published(0, 0.0)

    def take_over(self, app: str, token: int) -> int:
        return self._target.take_over(app, token)

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        self._rows, began = 0, self._clock()
        applied = self._target.apply(epoch, {name: self._count(parts) for name, parts in changes.items()}, show=show)
        self.last = Published(self._rows if applied else 0, self._clock() - began)
        return applied

    def close(self) -> None:
        self._target.close()

    def _count(self, parts: Iterable[Changes]) -> Iterator[Changes]:
        for part in parts:
            self._rows += part.rows.num_rows
            yield part
