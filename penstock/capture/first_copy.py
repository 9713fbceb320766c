"""Waits until the first copy of every captured table is complete: an answer from half a table would be wrong.

How far a copy has come is read from what its capture has stored, so it does not matter which process captures. A table
that an app has read before is not waited for: it is complete, and stays readable while it is copied again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.capture.declaration import CaptureDeclaration, CapturedTable
from penstock.capture.state import CaptureState, capture_state
from penstock.contracts import TableCopy
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
    _rates: dict[str, tuple[float, int]] = field(default_factory=dict)  # by topic: when it was first seen, and its rows

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
                self._refuse_hopeless([capture for capture, _ in incomplete])
                self.report(self._progress(incomplete))
            stop.wait(LOOK_SECONDS)

    def _incomplete(self, already_read: Collection[str]) -> list[tuple[CaptureDeclaration, CapturedTable]]:
        found = []
        for declared in self.declarations:
            state = capture_state(self.log, declared.name)
            for table in declared.tables:
                copy = None if state is None else state.copies.get(table.topic)
                if table.topic not in already_read and (copy is None or copy.state != "complete"):
                    found.append((declared, table))
        return found

    def _progress(self, incomplete: Sequence[tuple[CaptureDeclaration, CapturedTable]]) -> CopyProgress:
        declared, table = max(incomplete, key=self._is_copying)
        state = capture_state(self.log, declared.name)
        copy = (None if state is None else state.copies.get(table.topic)) or TableCopy(table.table, "waiting")
        share = None if not copy.estimated_rows else min(copy.rows / copy.estimated_rows, 0.99)
        return CopyProgress(
            declared.name,
            table.topic,
            copy.rows,
            share,
            self._seconds_left(table.topic, copy),
            len(incomplete) - 1,
            self.running is not None or _is_alive(state),
        )

    def _is_copying(self, item: tuple[CaptureDeclaration, CapturedTable]) -> bool:
        declared, table = item
        state = capture_state(self.log, declared.name)
        copy = None if state is None else state.copies.get(table.topic)
        return copy is not None and copy.state == "copying"

    def _seconds_left(self, topic: str, copy: TableCopy) -> float | None:
        """By the rate since the copy was first seen; None until there is one."""
        now = time.monotonic()
        began, rows_then = self._rates.setdefault(topic, (now, copy.rows))
        copied = copy.rows - rows_then
        if not copied or not copy.estimated_rows or now - began < 1:
            return None
        return max(0, copy.estimated_rows - copy.rows) * (now - began) / copied

    def _refuse_hopeless(self, incomplete: Sequence[CaptureDeclaration]) -> None:
        for declared in incomplete:
            if self.running is not None:
                if failure := self.running.failures.get(declared.name):
                    raise failure
                if not (self.once and self.running.have_ended):
                    continue
            state = capture_state(self.log, declared.name)
            if state is None:
                raise self._never_captured(declared)
            if self.once and not state.is_alive:
                raise UnavailableError(
                    f"capture '{declared.name}': the first copy of {', '.join(declared.topics.values())} is not "
                    "complete, and no process captures",
                    hint=f"start it: penstock capture run {declared.name}",
                )

    def _never_captured(self, declared: CaptureDeclaration) -> PenstockError:
        tables = " ".join(f"--table {table.table}" for table in declared.tables)
        command = f"penstock capture run {declared.shown_url} --name {declared.name} {tables}"
        return PenstockError(
            f"capture '{declared.name}': {', '.join(declared.topics.values())} has never been captured into this log, "
            "and this run does not capture",
            hint=f"run without --no-capture, or: {command}",
        )


def _is_alive(state: CaptureState | None) -> bool:
    return state is not None and state.is_alive
