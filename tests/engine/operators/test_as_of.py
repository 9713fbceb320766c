"""What events find in the versions of a table, against a search through all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators import as_of
from penstock.engine.operators.as_of import AGE, EVENT, AsOf, Events, Versions
from penstock.engine.operators.contract import HASH, MOMENT, ROW_HASH, SECOND_HASH, WEIGHT, StateSpec, Watermarks
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, RIGHT, SIDE, SideColumns
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT, GONE
from penstock.engine.state.run import Run

SCHEMA = pa.schema(
    [
        (SIDE, pa.bool_()),
        (GONE, pa.bool_()),
        *((name, pa.int64()) for name in ("number", COUNT, HASH, SECOND_HASH, ROW_HASH, MOMENT, "event_or_age")),
    ]
)

OURS = SideColumns({f"{LEFT}0": "number", MOMENT: MOMENT, EVENT: "event_or_age"})
THEIRS = SideColumns({f"{RIGHT}0": "number", MOMENT: MOMENT, AGE: "event_or_age", GONE: GONE})

How = Literal["inner", "left"]
KEYS = st.sampled_from([1, 2, 3])
MOMENTS = st.integers(0, 60)


@dataclass(frozen=True)
class Event:
    """It is looked for what held `back` before it happened."""

    key: int | None
    time: int
    back: int

    @property
    def moment(self) -> int:
        return self.time - self.back


@dataclass(frozen=True)
class Version:
    key: int
    moment: int
    gone: bool


@dataclass
class Looking:
    """Lookups that are run epoch by epoch. `known` are versions with the watermark that came before them."""

    how: How
    keep: int
    back: bool
    spread: int
    watermark: int = 0
    events: Counter[Event] = field(default_factory=Counter)
    known: list[tuple[Version, int]] = field(default_factory=list)
    answers: Counter[tuple[int, int | None]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        versions = Versions("v", THEIRS, None if self.back else self.keep)
        self.operator = AsOf(Events("e", OURS, self.keep), versions, self.how)
        specs: tuple[StateSpec, StateSpec] = (self.operator.left, self.operator.right)
        self.states = [Arrangement(spec.kind, spec.schema(SCHEMA), (), spec.expiry) for spec in specs]

    def step(self, events: list[tuple[Event, int]], versions: list[Version], watermark: int) -> int:
        """One epoch; how many events came too late."""
        first = len(self.known)
        self.known += [(item, self.watermark) for item in versions]
        changes = [self._event(*item) for item in events]
        changes += [self._version(item, number) for number, item in enumerate(versions, start=first)]
        watermarks = Watermarks(self.watermark, max(self.watermark, watermark))
        outcome = self.operator.step(pa.RecordBatch.from_pylist(changes, schema=SCHEMA), *self.states, watermarks)
        for output in outcome.output:
            for row in output.to_pylist():
                self.answers[row[f"{LEFT}0"], row[f"{RIGHT}0"]] += row[WEIGHT]
        assert min(self.answers.values(), default=0) >= 0
        runs = (outcome.left, outcome.right)
        self.states = [self._settled(*item, watermarks) for item in zip(self.states, runs, strict=True)]
        self.watermark = watermarks.after
        return outcome.left_counts.get("late", 0)

    def has_forgotten(self, version: Version) -> bool:
        """Whether it would come before a delete that nobody remembers."""
        deletes = [known.moment for known, _ in self.known if known.key == version.key and known.gone]
        return any(version.moment < moment and moment + self.keep <= self.watermark for moment in deletes)

    def _settled(self, state: Arrangement, run: Run, watermarks: Watermarks) -> Arrangement:
        """Runs are merged at once, and what cannot be reached goes."""
        state = replace(state, watermark=watermarks.after)
        if not run.rows:
            return state
        merged = state.with_run(run).merge_newest(len(state.runs) + 1, watermarks.after)
        return replace(state, runs=(merged,) if merged.rows else ())

    def _event(self, event: Event, weight: int) -> dict[str, Any]:
        return self._keyed(event.key, (event.time, event.back)) | {
            SIDE: False,
            "number": number_of(event),
            COUNT: weight,
            MOMENT: event.moment,
            "event_or_age": event.time,
        }

    def _version(self, version: Version, number: int) -> dict[str, Any]:
        return self._keyed(version.key, number) | {
            SIDE: True,
            GONE: version.gone,
            "number": number,
            COUNT: 1,
            MOMENT: version.moment,
            "event_or_age": number,
        }

    def _keyed(self, key: int | None, row: object) -> dict[str, Any]:
        whole = hash((key, row))
        if key is None:
            return {HASH: whole, SECOND_HASH: NO_LEFT_KEY, ROW_HASH: whole}
        return {HASH: key % self.spread, SECOND_HASH: 1_000 + key, ROW_HASH: whole}

    def expected(self) -> Counter[tuple[int, int | None]]:
        answers: Counter[tuple[int, int | None]] = Counter()
        for event in self.events.elements():
            found = [
                (version.moment, number, version.gone)
                for number, (version, before) in enumerate(self.known)
                if version.key == event.key and version.moment <= event.moment and event.time + self.keep >= before
            ]
            _, number, gone = max(found, default=(0, 0, True))
            if not gone:
                answers[number_of(event), number] += 1
            elif self.how == "left":
                answers[number_of(event), None] += 1
        return answers


def number_of(event: Event) -> int:
    return (event.key or 0) * 10_000 + event.time * 100 + event.back


def epochs(back: bool) -> st.SearchStrategy[Any]:
    backs = st.sampled_from([0, 3, 15]) if back else st.just(0)
    events = st.builds(Event, st.none() | KEYS, MOMENTS, backs)
    versions = st.builds(Version, KEYS, MOMENTS, st.booleans())
    epoch = st.tuples(
        st.lists(st.tuples(events, st.booleans()), max_size=6), st.lists(versions, max_size=4), st.integers(0, 25)
    )
    return st.lists(epoch, min_size=1, max_size=7)


@pytest.mark.parametrize("how", ["inner", "left"])
@given(st.data(), st.sampled_from([0, 5, 30]), st.booleans(), st.sampled_from([1, 2, 10]))
def test_events_find_the_version_that_held_then(
    how: How, data: st.DataObject, keep: int, back: bool, spread: int
) -> None:
    looking = Looking(how, keep, back, spread)
    for events, versions, further in data.draw(epochs(back)):
        changes, late = [], 0
        for event, goes in events:
            weight = 1
            if event.time + keep < looking.watermark:
                late += 1
            else:
                weight = -1 if goes and looking.events[event] else 1
                looking.events[event] += weight
            changes.append((event, weight))
        told_in_time = [item for item in versions if not looking.has_forgotten(item)]
        assert looking.step(changes, told_in_time, looking.watermark + further) == late
        assert +looking.answers == looking.expected()


def test_events_that_are_not_kept_keep_what_they_found() -> None:
    looking = Looking("left", 0, back=True, spread=10)
    looking.operator = AsOf(Events("e", OURS, None), Versions("v", THEIRS, None), "left")
    looking.step([(Event(1, 10, 0), 1)], [], 20)
    looking.step([(Event(1, 5, 0), 1)], [Version(1, 0, gone=False)], 20)
    looking.step([], [Version(1, 0, gone=False)], 20)
    assert +looking.answers == Counter({(11_000, None): 1, (10_500, 0): 1})
    assert looking.states[0].rows == 0


def test_versions_that_no_event_can_find_any_more_are_forgotten() -> None:
    looking = Looking("inner", 10, back=False, spread=10)
    looking.step([], [Version(1, moment, gone=False) for moment in range(5)], 13)
    assert looking.states[1].rows == 2  # one that holds from 3 on, and one from 4 on
    looking.step([], [Version(1, 6, gone=True)], 30)
    looking.step([], [Version(2, 6, gone=False)], 30)
    assert looking.states[1].rows == 1


def test_many_answers_go_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_of, "PIECE_PAIRS", 3)
    looking = Looking("inner", 100, back=False, spread=10)
    looking.step([(Event(1, time, 0), 1) for time in range(10)], [Version(1, 0, gone=False)], 10)
    assert len(looking.answers) == 10
