"""How fast a capture is, and how far behind: counts and times, nothing else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.capture.folder import TableStatus
from penstock.contracts import TableCopy

_SECONDS = 10.0  # over which speed is measured


@dataclass(slots=True)
class Speed:
    """The speed of a count, over the last seconds."""

    counts: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, count: int) -> None:
        now = time.monotonic()
        self.counts.append((now, count))
        while len(self.counts) > 2 and self.counts[1][0] < now - _SECONDS:
            self.counts.popleft()

    @property
    def per_second(self) -> float:
        if len(self.counts) < 2:
            return 0.0
        (began, first), (_, last) = self.counts[0], self.counts[-1]
        return (last - first) / max(time.monotonic() - began, 1e-3)


@dataclass(slots=True)
class CaptureMeter:
    """Is told of rows that were written, and how far copies are."""

    delay_seconds: float | None = None
    _rows: Speed = field(default_factory=Speed)
    _copied: dict[str, Speed] = field(default_factory=dict)

    def written(self, rows: int, newest_commit: int) -> None:
        """So many rows were written in total; `newest_commit` is that of the last ones, or 0 if they were copied."""
        self._rows.add(rows)
        if newest_commit:
            self.delay_seconds = max(0.0, time.time() - newest_commit / 1_000_000)

    @property
    def rows_per_second(self) -> float:
        return round(self._rows.per_second, 1)

    def tables(self, topics: Mapping[str, str], copies: Sequence[TableCopy]) -> tuple[TableStatus, ...]:
        return tuple(self._table(topics[copy.table], copy) for copy in copies if copy.table in topics)

    def _table(self, topic: str, copy: TableCopy) -> TableStatus:
        left = None
        if copy.state == "copying":
            speed = self._copied.setdefault(copy.table, Speed())
            speed.add(copy.rows)
            if copy.estimated_rows and speed.per_second > 0:
                left = round(max(0, copy.estimated_rows - copy.rows) / speed.per_second, 1)
        return TableStatus(copy.table, topic, copy.state, copy.rows, copy.estimated_rows, left)
