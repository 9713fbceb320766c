"""What tests of copies need: a database in memory that is captured by the real pump, with a script of what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.capture.copy import Copy
from penstock.capture.copy.position import CopyPosition
from penstock.capture.pump import Progress, PumpOptions, pump
from penstock.contracts import COMMIT_TIME, Database, Log, Position, Topic

Row = dict[str, Any]
NAME = "capture.shop"


def latest_rows(topic: Topic) -> list[Row]:
    """The rows of a topic as whoever reads it by key has them, in the order of their keys, without `COMMIT_TIME`."""
    rows: dict[tuple[Any, ...], Row] = {}
    for batch in topic.batches():
        marks = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
        for row, is_delete in zip(batch.rows.to_pylist(), marks, strict=True):
            key = tuple(row[name] for name in topic.settings.key)
            if is_delete:
                rows.pop(key, None)
            else:
                rows[key] = {name: value for name, value in row.items() if name != COMMIT_TIME}
    return [rows[key] for key in sorted(rows)]


class CrashError(Exception):
    """The process ends here: nothing more is written."""


@dataclass(slots=True)
class Script:
    """Stands for `stop`: each time the pump asks, the next step happens. It stops when the database is caught up."""

    database: Database
    steps: Iterator[Callable[[], None]]
    position: Callable[[], Position | None]
    end: Position | None = None

    def is_set(self) -> bool:
        if self.end is None:
            step = next(self.steps, None)
            if step is not None:
                step()
                return False
            self.end = self.database.end()
        return self.database.has_reached(CopyPosition.parse(self.position()).source, self.end)

    def wait(self, timeout: float) -> bool:
        return self.is_set()


@dataclass(slots=True)
class Capture:
    """A capture of a database that can crash and start again. `connect` opens the database anew."""

    log: Log
    connect: Callable[[], Database]
    topics: Mapping[str, str]
    folder: Path
    batch_rows: int = 5_000
    clock: Callable[[], int] = lambda: 1_800_000_000_000_000
    report: Callable[[Progress], None] = lambda progress: None
    writes: int = field(default=0)

    def run(self, steps: Iterable[Callable[[], None]] = ()) -> None:
        """Capture while the steps happen, until everything is there. A step that raises CrashError starts it again."""
        remaining = iter(steps)
        while self._run_until_crash(remaining):
            pass

    def copy_again(self, *tables: str) -> None:
        """What the command does between two runs of the pump."""
        place = CopyPosition.parse(self.log.position(NAME))
        again = self.connect().copy_again(place.source, tables)
        self.log.writer(NAME).write([], CopyPosition(again, place.copying).to_json())

    def _run_until_crash(self, steps: Iterator[Callable[[], None]]) -> bool:
        database = self.connect()
        copy = Copy(database, self.log, self.topics, self.folder, name="shop", clock=self.clock)
        writer = self.log.writer(NAME)
        script = Script(database, steps, lambda: self.log.position(NAME))
        try:
            pump(
                copy,
                writer,
                topics=self.topics,
                stop=script,
                report=self.report,
                options=PumpOptions(batch_rows=self.batch_rows, first_pause=0.0),
            )
        except CrashError:
            return True
        finally:
            copy.close()
            writer.close()
        return False


def crash() -> None:
    raise CrashError
