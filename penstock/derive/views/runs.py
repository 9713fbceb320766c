"""Which rows of a view's runs count: the runs of one partition, with marks on the rows that other runs change.

Runs never change, so a newer commit differs in only a few runs. What one run says about another is marked once, and
undone when one of the two is gone: the cost of following an app is proportional to its changes. All of it is
immutable: readers of an older commit keep their marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.engine.ledger.records import Growth
from penstock.engine.state.columns import COUNT, GONE
from penstock.engine.state.rows import integers, mask
from penstock.engine.state.run import Run, RunFile
from penstock.engine.state.search import NOWHERE, Mask, positions

Count = npt.NDArray[np.int64]
Pieces = tuple[Run, ...]
"""The content of a file: one run, or in an appended view one piece per batch that was written."""
Opener = Callable[[RunFile], Pieces]
_Pair = tuple[RunFile, RunFile]
"""An older and a newer run of one partition."""


class NegativeCountError(ValueError):
    """More rows were removed than there were."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What the other runs of a partition say about the rows of one run; None if they say nothing.

    In a keyed view, `replaced` is how many newer runs have the key. In a counted view, `repeated` is how many older
    runs have the row, and `added` is what newer runs add to its count.
    """

    replaced: npt.NDArray[np.uint16] | None = None
    repeated: npt.NDArray[np.uint16] | None = None
    added: Count | None = None


_NO_MARKS = Marks()


@dataclass(frozen=True, slots=True, eq=False)
class LiveRun:
    """A run, and which of its rows count: `live` is None for all. `counts` says how often, if any count repeatedly."""

    run: Run
    live: Mask | None = None
    counts: Count | None = None

    @property
    def rows(self) -> int:
        if self.counts is not None:
            return int(self.counts.sum())
        return self.run.rows if self.live is None else int(np.count_nonzero(self.live))


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """The runs of one partition of a view, open, oldest first, and the marks on their rows."""

    growth: Growth
    runs: Mapping[RunFile, Pieces] = field(default_factory=dict)
    marks: Mapping[RunFile, Marks] = field(default_factory=dict)

    def follow(self, files: Iterable[RunFile], open_run: Opener) -> OpenPartition:
        """The partition with the files that a commit names. Files that are already open stay open."""
        runs = {file: self.runs.get(file) or open_run(file) for file in files}
        if runs.keys() == self.runs.keys() and list(runs) == list(self.runs):
            return self
        if self.growth == "appended":
            return OpenPartition(self.growth, runs)
        editor = _MarkEditor(
            self.growth, {**self.runs, **runs}, {file: self.marks.get(file, _NO_MARKS) for file in runs}
        )
        before, now = set(_pairs(self.runs)), set(_pairs(runs))
        for older, newer in before - now:
            editor.mark(older, newer, -1)
        for older, newer in now - before:
            editor.mark(older, newer, 1)
        return OpenPartition(self.growth, runs, editor.marks)

    def live_runs(self) -> Iterator[LiveRun]:
        """The runs that are not empty, oldest first."""
        for file, pieces in self.runs.items():
            marks = self.marks.get(file, _NO_MARKS)
            for run in (run for run in pieces if run.rows):
                if self.growth == "keyed":
                    yield _live_keyed_run(run, marks)
                else:
                    yield _live_counted_run(run, marks) if self.growth == "counted" else LiveRun(run)


def _pairs(files: Iterable[RunFile]) -> Iterator[_Pair]:
    older: list[RunFile] = []
    for newer in files:
        yield from ((file, newer) for file in older)
        older.append(newer)


class _MarkEditor:
    """Changes marks in copies, which it makes once per run."""

    def __init__(self, growth: Growth, runs: Mapping[RunFile, Pieces], marks: dict[RunFile, Marks]) -> None:
        self.marks = marks
        self._keyed = growth == "keyed"
        self._runs = {file: run for file, (run,) in runs.items()}
        self._copied: set[tuple[RunFile, str]] = set()

    def mark(self, older: RunFile, newer: RunFile, sign: int) -> None:
        """Mark what a newer run says about an older one (sign 1), or undo it (-1). Runs that are gone are skipped."""
        if older not in self.marks and (self._keyed or newer not in self.marks):
            return
        base, change = self._runs[older], self._runs[newer]
        at = positions(base.order, base.id, change.order, change.id)
        known = at != NOWHERE
        if not known.any():
            return
        if self._keyed:
            self._copy(older, "replaced", np.uint16)[at[known]] += np.int8(sign).astype(np.uint16)
            return
        if older in self.marks:
            self._copy(older, "added", np.int64)[at[known]] += sign * integers(change.batch, COUNT)[known]
        if newer in self.marks:
            self._copy(newer, "repeated", np.uint16)[known] += np.int8(sign).astype(np.uint16)

    def _copy(self, file: RunFile, name: str, kind: type[np.uint16] | type[np.int64]) -> npt.NDArray[np.generic]:
        marks = self.marks[file]
        values: npt.NDArray[np.generic] | None = getattr(marks, name)
        if (file, name) not in self._copied:
            values = np.zeros(self._runs[file].rows, dtype=kind) if values is None else values.copy()
            changed: dict[str, Any] = {name: values}
            self.marks[file] = replace(marks, **changed)
            self._copied.add((file, name))
        assert values is not None
        return values


def _live_keyed_run(run: Run, marks: Marks) -> LiveRun:
    gone = mask(run.batch.column(GONE))
    if marks.replaced is None:
        return LiveRun(run, ~gone if gone.any() else None)
    live: Mask = marks.replaced == 0
    live &= ~gone
    return LiveRun(run, live)


def _live_counted_run(run: Run, marks: Marks) -> LiveRun:
    """A row counts in the oldest run that has it."""
    counts = integers(run.batch, COUNT)
    if marks.added is not None:
        counts = counts + marks.added
    if marks.repeated is not None:
        counts = np.where(marks.repeated == 0, counts, 0)
    if int(counts.min()) < 0:
        raise NegativeCountError
    if (counts == 1).all():
        return LiveRun(run)
    live: Mask = counts > 0
    return LiveRun(run, live, counts if int(counts.max()) > 1 else None)
