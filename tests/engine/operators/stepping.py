"""Runs an operator without Spark, epoch by epoch, as the tasks of an app do; and histories of events to run it over.

What comes out is added up to what a view would hold. That nothing is ever taken back which was not given before is
checked in every epoch.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.engine.operators.contract import HASH, SECOND_HASH, WEIGHT, Operator, Watermarks
from penstock.engine.operators.windows import WindowOrder
from penstock.engine.state import arrangement as arrangements
from penstock.engine.state.arrangement import Arrangement, last_expiry
from penstock.engine.state.run import Run, RunFile, open_runs, reachable, store_run

NO_TIME = -(2**63)
Row = dict[str, Any]
Answers = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Event:
    """`weight` is -1 for an event that takes back an earlier one, which has the same `number`."""

    key: str | None
    time: int
    value: int | None
    number: int
    weight: int = 1


@dataclass(frozen=True)
class Epoch:
    events: tuple[Event, ...]
    watermark: int


@dataclass(frozen=True)
class Way:
    """How a history is run: how readily runs are merged, whether they are stored, how many first hashes there are."""

    growth: int = 3
    stored: bool = False
    spread: int = 2**64


@dataclass(frozen=True)
class Windows:
    size: int
    every: int
    keep: int

    @property
    def order(self) -> WindowOrder:
        return WindowOrder(self.every, self.size, self.keep)

    def starts(self, time: int) -> list[int]:
        """The starts of all windows that an event is in, the last one first."""
        last = time // self.every * self.every
        return list(range(last, time - self.size, -self.every))


windows = st.builds(
    Windows, size=st.sampled_from([10, 20]), every=st.sampled_from([5, 10]), keep=st.sampled_from([0, 7, 40])
)


Drawn = list[tuple[int, list[tuple[str | None, int, int | None, int]]]]


def histories(*, retracts: bool = False) -> st.SearchStrategy[tuple[Epoch, ...]]:
    """Epochs of events that come out of order, around the time of their epoch; time moves on between epochs."""
    event = st.tuples(
        st.sampled_from(["a", "a", "b", None]),
        st.integers(-35, 12),
        st.one_of(st.none(), st.integers(-3, 3)),
        st.integers(0, 2**16) if retracts else st.just(0),
    )
    epoch = st.tuples(st.one_of(st.integers(0, 4), st.integers(0, 25)), st.lists(event, max_size=5))
    return st.builds(_history, st.lists(epoch, min_size=1, max_size=12))


def _history(drawn: Drawn) -> tuple[Epoch, ...]:
    clock, number = -5, 0
    epochs: list[Epoch] = []
    kept: list[Event] = []
    for moved, events in drawn:
        clock += moved
        found = []
        for key, ahead, value, choice in events:
            if choice % 3 == 1 and kept:  # an earlier event is taken back
                found.append(replace(kept.pop(choice % len(kept)), weight=-1))
                continue
            kept.append(Event(key, clock + ahead, value, number))
            found.append(kept[-1])
            number += 1
        epochs.append(Epoch(tuple(found), NO_TIME if clock < 0 else clock))
    return tuple(epochs)


def ways() -> st.SearchStrategy[Way]:
    return st.builds(
        Way,
        growth=st.sampled_from([0, 1, 3, 1000]),
        stored=st.sampled_from([False, False, False, True]),
        spread=st.sampled_from([1, 3, 2**64]),
    )


def recut(epochs: Sequence[Epoch]) -> tuple[Epoch, ...]:
    """The same events all in one epoch."""
    return (Epoch(tuple(event for epoch in epochs for event in epoch.events), epochs[-1].watermark),)


def unhurried(epochs: Sequence[Epoch]) -> tuple[Epoch, ...]:
    """The same events and cuts, with time standing still until the last epoch: nothing is late."""
    return (*(replace(epoch, watermark=NO_TIME) for epoch in epochs[:-1]), epochs[-1])


def befores(epochs: Sequence[Epoch]) -> Iterator[tuple[Epoch, int]]:
    """Each epoch with the watermark before it."""
    before = NO_TIME
    for epoch in epochs:
        yield epoch, before
        before = max(before, epoch.watermark)


def accepted(epochs: Sequence[Epoch], late: Callable[[Event, int], bool]) -> list[Event]:
    """The events that were not late when they came."""
    return [event for epoch, before in befores(epochs) for event in epoch.events if not late(event, before)]


def living(events: Sequence[Event]) -> list[Event]:
    """The events that were not taken back."""
    weights: Counter[Event] = Counter()
    for event in events:
        weights[replace(event, weight=1)] += event.weight
    return [event for event, weight in weights.items() for _ in range(weight)]


def late_for_session(event: Event, before: int, gap: int, keep: int) -> bool:
    """An event is late with all others of its piece of time."""
    return (event.time // gap + 1) * gap + gap + keep <= before


def sessions(events: Iterable[Event], gap: int) -> list[list[Event]]:
    """The events of one key with less than the gap between one and the next."""
    found: list[list[Event]] = []
    for event in sorted(events, key=lambda event: (str(event.key), event.time)):
        if found and found[-1][-1].key == event.key and event.time - found[-1][-1].time < gap:
            found[-1].append(event)
        else:
            found.append([event])
    return found


def hash_of(salt: int, *values: object) -> int:
    """Any good 64-bit function of the values, as a signed number."""
    digest = hashlib.blake2b(repr((salt, values)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def hashed(row: Row, way: Way, *key: object) -> Row:
    """The row with the two hashes of its key; with a small spread many keys share the first."""
    first = hash_of(1, *key)
    return {**row, HASH: first if way.spread == 2**64 else first % way.spread, SECOND_HASH: hash_of(2, *key)}


def frozen(value: Any) -> Any:
    """The value as one that can be counted: equal where Spark holds values for equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, frozen(item)) for name, item in value.items())
    return value


class Stepper:
    """Keeps the state of one operator, as a state partition does, and adds up what comes out."""

    def __init__(self, operator: Operator, schema: pa.Schema, columns: Sequence[str], way: Way, folder: Path) -> None:
        self._operator = operator
        self._schema = schema
        self._columns = list(columns)
        self._way = way
        self._folder = folder
        self._runs: list[tuple[RunFile, Run]] = []
        self.answers: Answers = Counter()
        self.counts: Counter[str] = Counter()
        self.given: list[list[Row]] = []
        self._before = NO_TIME

    @property
    def rows(self) -> int:
        """How many rows the state has."""
        return sum(run.rows for _, run in self._runs)

    def step(self, rows: Sequence[Row], watermark: int) -> list[Row]:
        """One epoch: what the operator gives."""
        times = Watermarks(self._before, max(self._before, watermark))
        changes = pa.RecordBatch.from_pylist(list(rows), schema=self._schema)
        files = reachable([file for file, _ in self._runs], times.before)
        self._runs = [(file, run) for file, run in self._runs if file in files]
        operator = self._operator
        arrangement = Arrangement(
            operator.kind, operator.schema(self._schema), self._open(), operator.expiry, times.before
        )
        outcome = self._operator.step(changes, arrangement, times)
        self._store(arrangement.with_run(outcome.run), times)
        self.counts.update(outcome.counts)
        given = [row for batch in outcome.output for row in batch.to_pylist()]
        self._before = times.after
        self.given.append(given)
        return given

    def _open(self) -> tuple[Run, ...]:
        if not self._way.stored:
            return tuple(run for _, run in self._runs)
        return open_runs(self._folder, "state/one/0", [file for file, _ in self._runs])

    def _store(self, grown: Arrangement, times: Watermarks) -> None:
        for run in grown.runs:
            assert_sorted(run)
        if len(grown.runs) == len(self._runs):
            return
        count, run = grown.merge_small_runs(times.after)
        assert_sorted(run)
        del self._runs[count:]
        if not run.rows:
            return
        expires = last_expiry(self._operator.expiry, run)
        file = RunFile(f"run {len(self.given)}", run.rows, 0, 0, expires)
        if self._way.stored:
            file = store_run(self._folder, "state/one/0", "000", run, expires)
        self._runs.append((file, run))

    def add_up(self, given: Sequence[Row]) -> None:
        """Add changes to the answers; none may be taken back that was not given before."""
        for row in given:
            self.answers[tuple(frozen(row[name]) for name in self._columns)] += row[WEIGHT]
        assert min(self.answers.values(), default=0) >= 0
        self.answers = +self.answers

    def seen(self, *without: str) -> Answers:
        """The answers, leaving out some columns."""
        kept = [number for number, name in enumerate(self._columns) if name not in without]
        seen: Answers = Counter()
        for row, weight in self.answers.items():
            seen[tuple(row[number] for number in kept)] += weight
        return seen


def assert_sorted(run: Run) -> None:
    keys = list(zip(run.order.tolist(), run.id.tolist(), strict=True))
    assert keys == sorted(set(keys))


@contextmanager
def stepping(operator: Operator, schema: pa.Schema, columns: Sequence[str], way: Way) -> Iterator[Stepper]:
    """A stepper with a folder of its own, while runs are merged as readily as the way says."""
    usual = arrangements.GROWTH
    arrangements.GROWTH = way.growth
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Stepper(operator, schema, columns, way, Path(folder))
    finally:
        arrangements.GROWTH = usual
