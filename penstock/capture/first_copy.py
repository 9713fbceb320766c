"""Waits until the first copy of every captured table is complete: an answer from half a table would be wrong.

How far a copy has come is read from what its capture has stored, so it does not matter which process captures. A table
that an app has read before is not waited for: it is complete, and stays readable while it is copied again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.capture.folder import CaptureFolder, TableStatus
from penstock.errors import PenstockError, UnavailableError
from penstock.units import format_duration

LOOK_SECONDS = 0.3


class Stop(Protocol):
    """A `threading.Event`."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The first copy that is waited for: how far it has come, and how many others are not complete either."""

    capture: str
    topic: str
    rows: int = 0
    share: float | None = None
    seconds_left: float | None = None
    others: int = 0
    is_running: bool = True  # whether any process captures

    def __str__(self) -> str:
        if not self.is_running:
            return f"waiting for the first copy of {self.topic}: capture '{self.capture}' does not run"
        parts = [f"{self.rows:,} rows so far" if self.share is None else f"{self.share:.0%}"]
        if self.seconds_left is not None:
            unit = 60 if self.seconds_left > 90 else 1
            parts.append(f"{format_duration(max(1, round(self.seconds_left / unit)) * unit)} left")
        if self.others:
            parts.append(f"{self.others} more table{'s' if self.others > 1 else ''}")
        return f"waiting for the first copy of {self.topic}: {', '.join(parts)}"


class RunningCaptures(Protocol):
    """The captures that run beside the app: a `Supervisor`."""

    @property
    def failures(self) -> Mapping[str, PenstockError]: ...

    @property
    def have_ended(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Incomplete:
    """A table whose first copy is not complete, and whether any process captures it, or ever did."""

    declared: CaptureDeclaration
    table: TableStatus
    is_running: bool
    was_captured: bool


@dataclass(slots=True)
class FirstCopies:
    """The captured tables of an app. `running` are the captures that run with it; None: they run elsewhere.

    With `once`, also every capture that runs with it is waited for: it ends when it has come to the present.
    """

    log: str | Path
    declarations: Sequence[CaptureDeclaration]
    running: RunningCaptures | None = None
    once: bool = False
    report: Callable[[CopyProgress], None] = lambda progress: None

    def wait(self, already_read: Collection[str], stop: Stop) -> None:
        """Return when all are complete, or `stop` is set.

        PenstockError if one will never be, as things are: its capture failed, or nobody captures it.
        """
        while not stop.is_set():
            waits_for_end = self.once and self.running is not None and not self.running.have_ended
            incomplete = self._incomplete(already_read)
            if not incomplete and not waits_for_end:
                return
            if incomplete:
                self._refuse_hopeless(incomplete)
                self.report(self._progress(incomplete))
            stop.wait(LOOK_SECONDS)

    def _incomplete(self, already_read: Collection[str]) -> list[_Incomplete]:
        found = []
        for declared in self.declarations:
            folder = CaptureFolder.at(self.log, declared.name)
            stored = folder.load_status()
            tables = {} if stored is None else {table.topic: table for table in stored.tables}
            for table in declared.tables:
                status = tables.get(table.topic, TableStatus(table.table, table.topic))
                if table.topic not in already_read and status.state != "complete":
                    found.append(_Incomplete(declared, status, folder.is_running(), stored is not None))
        return found

    def _progress(self, incomplete: Sequence[_Incomplete]) -> CopyProgress:
        waits_for = max(incomplete, key=lambda item: item.table.state == "copying")
        table = waits_for.table
        return CopyProgress(
            waits_for.declared.name,
            table.topic,
            table.rows,
            None if not table.estimated_rows else min(table.rows / table.estimated_rows, 0.99),
            table.seconds_left,
            len(incomplete) - 1,
            self.running is not None or waits_for.is_running,
        )

    def _refuse_hopeless(self, incomplete: Sequence[_Incomplete]) -> None:
        for item in incomplete:
            if self.running is not None and (failure := self.running.failures.get(item.declared.name)):
                raise failure
            if item.is_running or (self.running is not None and not self.running.have_ended):
                continue
            if not item.was_captured:
                raise self._never_captured(item.declared)
            if self.once:
                raise UnavailableError(
                    f"capture '{item.declared.name}': the first copy of {item.table.topic} is not complete, and no "
                    "process captures",
                    hint="run without --no-capture, or start the capture",
                )

    def _never_captured(self, declared: CaptureDeclaration) -> PenstockError:
        tables = " ".join(map(_options_of, declared.tables))
        command = f"penstock capture run {declared.shown_url} --name {declared.name} {tables}"
        return PenstockError(
            f"capture '{declared.name}': {', '.join(declared.topics.values())} has never been captured into this log, "
            "and this run does not capture",
            hint=f"run without --no-capture, or: {command}",
        )


def _options_of(table: CapturedTable) -> str:
    """How `penstock capture run` is told of a table."""
    kind = "--outbox" if table.inserts_only else "--table"
    return f"{kind} {table.table}" + (f" --topic {table.table}={table.topic}" if table.topic != table.table else "")
