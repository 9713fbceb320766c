"""The pump: from a source to a writer, each row once and in order. It owns retry, batching, progress and shutdown.

Its loop; the same numbers mark the steps in the code:

1. Read from the source what comes after the writer's position.
2. Gather rows up to an item that has a position; from a source that confirms, up to a heartbeat or a full batch, or for
   as long as rows may wait. If no position comes for many rows, a writer that can stage rows sets them aside, behind
   all that is complete.
3. Write them with that position, in one step; while the log is unavailable, pause and try again.
4. Confirm the position to the source, and report progress.

After a crash at any point, the next pump reads from the position of the last write. When the source is unavailable,
what it gave before is written, and it is read again after a pause. Any other error ends the pump. Whenever reading
ends or begins, what was staged without a position is discarded: it is read again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from penstock.capture.gather import GatheredRows
from penstock.contracts import Captured, Confirms, Position, Source, StagesRows, Writer
from penstock.errors import DeclarationError, UnavailableError

Stored = TypeVar("Stored")


class Stop(Protocol):
    """Tells the pump to stop, and is what it waits on while it pauses: a `threading.Event`."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool:
        """Wait this many seconds or until it is set. Returns whether it is set."""


@dataclass(frozen=True, slots=True)
class PumpOptions:
    """How the pump batches and retries. It gives up after `attempts` failures in a row; pauses between them double.

    `most_rows` and `most_bytes` (about, as Arrow holds them) bound what it keeps in memory, if the writer can stage
    rows: a transaction of the source may be larger. Items are whole: a larger one is kept nevertheless. Complete rows
    wait for others at most `most_seconds`: a source that always has a few more would otherwise fill whole batches.
    """

    batch_rows: int = 5_000
    most_rows: int = 200_000
    most_bytes: int = 32 * 1024 * 1024
    most_seconds: float = 0.1
    attempts: int = 10
    first_pause: float = 0.1
    longest_pause: float = 30.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What one pump has done: rows and writes that it stored, writes that had been stored before, and pauses."""

    position: Position | None = None
    rows: int = 0
    writes: int = 0
    repeats: int = 0
    pauses: int = 0


def pump(
    source: Source,
    writer: Writer,
    *,
    topics: Mapping[str, str] | None = None,
    options: PumpOptions | None = None,
    stop: Stop | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Write what the source gives until it ends or `stop` is set. `topics` maps each table to its topic.

    Without `topics`, a table is written to the topic of the same name. `report` is called after every write. The caller
    closes the source and the writer. Errors of either are raised unchanged; what was written before stays.
    """
    names = {table.name: table.name for table in source.tables()} if topics is None else dict(topics)
    _refuse_missing_topics(source, names)
    return _Pump(source, writer, names, options or PumpOptions(), stop or threading.Event(), report).run()


@dataclass(slots=True)
class _Pump:
    source: Source
    writer: Writer
    topics: Mapping[str, str]
    options: PumpOptions
    stop: Stop
    report: Callable[[Progress], None]
    progress: Progress = field(default_factory=Progress)
    failures: int = 0  # in a row
    waiting_since: float | None = None  # the oldest complete rows that are not written

    def run(self) -> Progress:
        while not self.stop.is_set():
            try:
                self._pump_until_stopped()
                break
            except UnavailableError:
                if not self._pause() and not self.stop.is_set():
                    raise
        return self.progress

    def _pump_until_stopped(self) -> None:
        """Repeat steps 1 to 4 until the source ends or fails, or the pump is stopped."""
        after = self.writer.position
        self.progress = replace(self.progress, position=after)
        gathered = GatheredRows(self.topics, after)
        self._discard_staged()
        items = self.source.read(after)  # 1
        try:
            while (item := self._next_item(items, gathered)) is not None:
                gathered.add(item)  # 2
                if self._is_due(gathered, item):
                    self._write(gathered)  # 3, 4
                self._stage_if_many(gathered)
                if self.stop.is_set():
                    break
            self._write(gathered)
        finally:
            self._discard_staged()
            if isinstance(items, Generator):
                items.close()

    def _next_item(self, items: Iterator[Captured], gathered: GatheredRows) -> Captured | None:
        try:
            item = next(items, None)
        except Exception:
            self._write(gathered)
            raise
        if gathered.items == 1:
            # The second item shows that the source works and does not only open. From here on, failures count anew.
            self.failures = 0
        return item

    def _is_due(self, gathered: GatheredRows, item: Captured) -> bool:
        if not isinstance(self.source, Confirms):
            return item.position is not None
        full = gathered.complete_rows >= self.options.batch_rows or gathered.complete_bytes >= self.options.most_bytes
        return full or not len(item.rows) or self._has_waited(gathered)

    def _has_waited(self, gathered: GatheredRows) -> bool:
        if not gathered.complete_rows:
            return False
        now = time.monotonic()
        if self.waiting_since is None:
            self.waiting_since = now
        return now - self.waiting_since >= self.options.most_seconds

    def _stage_if_many(self, gathered: GatheredRows) -> None:
        """Step 2 for a transaction that is too large to be kept in memory until its position comes."""
        if gathered.open_rows < self.options.most_rows and gathered.open_bytes < self.options.most_bytes:
            return
        writer = self.writer
        if isinstance(writer, StagesRows):
            self._write(gathered)  # it would be stored behind the staged rows
            parts = gathered.take_open()
            self._retry(lambda: writer.stage(parts))

    def _discard_staged(self) -> None:
        if isinstance(self.writer, StagesRows):
            self.writer.discard()

    def _write(self, gathered: GatheredRows) -> None:
        if not gathered.has_moved:
            return
        self.waiting_since = None
        rows = gathered.complete_rows
        position, parts = gathered.take()
        assert position is not None
        stored = self._retry(lambda: self.writer.write(parts, position))  # 3
        self.failures = 0
        done = self.progress
        self.progress = replace(
            done,
            position=position,
            rows=done.rows + (rows if stored else 0),
            writes=done.writes + stored,
            repeats=done.repeats + (not stored),
        )
        if isinstance(self.source, Confirms):
            self.source.confirm(position)  # 4
        self.report(self.progress)

    def _retry(self, call: Callable[[], Stored]) -> Stored:
        """Call the writer until the log is available."""
        while True:
            try:
                return call()
            except UnavailableError:
                if not self._pause():
                    raise

    def _pause(self) -> bool:
        """Wait before the next attempt. False if there is none, or if the pump was stopped meanwhile."""
        self.failures += 1
        if self.failures >= self.options.attempts:
            return False
        self.progress = replace(self.progress, pauses=self.progress.pauses + 1)
        pause = min(self.options.first_pause * 2 ** (self.failures - 1), self.options.longest_pause)
        return not self.stop.wait(pause)


def _refuse_missing_topics(source: Source, topics: Mapping[str, str]) -> None:
    for table in source.tables():
        if table.name not in topics:
            raise DeclarationError(
                f"source: its table '{table.name}' has no topic; there are topics for {', '.join(topics) or 'none'}",
                hint="name a topic for each of its tables",
            )
