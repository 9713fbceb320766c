"""Sessions whose aggregates add up, against putting all events in order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import EVENTS, HASH, REVISION, SECOND_HASH
from penstock.engine.operators.session import LAST, Sessions
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from penstock.errors import RowError
from tests.engine.operators.stepping import (
    NO_TIME,
    Answers,
    Epoch,
    Event,
    Row,
    Stepper,
    Way,
    accepted,
    befores,
    frozen,
    hashed,
    histories,
    late_for_session,
    recut,
    sessions,
    stepping,
    unhurried,
    ways,
)

RULES: dict[str, Any] = {"sum": "sum", "least": "min", "most": "max"}
COLUMNS = ["key", START, END, COUNT, *RULES, REVISION]
gaps = st.sampled_from([3, 7, 10])
keeps = st.sampled_from([0, 5, 50])


LONG = pa.int64()


def schema(type_: pa.DataType = LONG) -> pa.Schema:
    return pa.schema(
        [
            ("key", pa.string()),
            *((name, type_) for name in RULES),
            *((name, pa.int64()) for name in (START, LAST, COUNT, EVENTS, HASH, SECOND_HASH)),
        ]
    )


def pieces(events: Iterable[Event], gap: int, way: Way) -> list[Row]:
    """What Spark hands over: the events of a group and a piece of time, summed up."""
    found: dict[tuple[str | None, int], list[Event]] = {}
    for event in events:
        found.setdefault((event.key, event.time // gap), []).append(event)
    return [
        hashed({"key": key, **sums(members), EVENTS: len(members)}, way, key) for (key, _), members in found.items()
    ]


def sums(events: Sequence[Event]) -> Row:
    values = [event.value for event in events if event.value is not None]
    times = [event.time for event in events]
    return {
        "sum": sum(values) if values else None,
        "least": min(values, default=None),
        "most": max(values, default=None),
        START: min(times),
        LAST: max(times),
        COUNT: len(events),
    }


def run(epochs: Sequence[Epoch], way: Way, gap: int, keep: int, *, final: bool) -> Stepper:
    with stepping(Sessions("one", RULES, gap, keep, final), schema(), COLUMNS, way) as stepper:
        for epoch in epochs:
            stepper.add_up(stepper.step(pieces(epoch.events, gap, way), epoch.watermark))
    return stepper


def expected(events: Iterable[Event], gap: int, mark: int | None) -> Answers:
    """The sessions of all events; with a mark only those that have ended by then."""
    answers: Answers = Counter()
    for members in sessions(events, gap):
        row = sums(members)
        if mark is None or row[LAST] + gap <= mark:
            answers[(members[0].key, row[START], row[LAST] + gap, row[COUNT], *(row[name] for name in RULES))] += 1
    return answers


@given(histories(), ways(), gaps, keeps, st.booleans())
def test_sessions_are_those_of_all_events_that_were_not_late(
    epochs: tuple[Epoch, ...], way: Way, gap: int, keep: int, final: bool
) -> None:
    stepper = run(epochs, way, gap, keep, final=final)
    events = accepted(epochs, lambda event, before: late_for_session(event, before, gap, keep))
    mark = max(epoch.watermark for epoch in epochs) if final else None
    assert stepper.seen(REVISION) == expected(events, gap, mark)
    came = sum(len(epoch.events) for epoch in epochs)
    assert stepper.counts["events"] == came
    assert stepper.counts["late"] == came - len(events)


@given(ways(), st.booleans(), st.integers(1, 30))
def test_a_session_that_lasts_longer_than_sessions_are_kept_stays_whole(way: Way, final: bool, step: int) -> None:
    events = [Event("a", time, 1, time) for time in range(0, 300, 9)]
    batches = [events[start : start + step] for start in range(0, len(events), step)]
    epochs = [Epoch(tuple(batch), batch[-1].time) for batch in batches]
    stepper = run([*epochs, Epoch((), 1000)], way, 10, 0, final=final)
    assert stepper.answers == Counter({("a", 0, 297 + 10, len(events), len(events), 1, 1, 0): 1})


@given(ways(), gaps, keeps, st.booleans(), st.data())
def test_an_event_that_is_not_late_joins_a_session_that_ended_long_before(
    way: Way, gap: int, keep: int, final: bool, data: st.DataObject
) -> None:
    mark = data.draw(st.integers(60, 80))
    time = data.draw(st.integers(mark - 2 * gap - keep, mark))
    first = Event("a", data.draw(st.integers(time - gap + 1, time)), 1, 0)
    quiet = [Epoch((Event("b", 1000 + number, 1, number),), mark) for number in range(3)]
    epochs = [Epoch((first,), NO_TIME), *quiet, Epoch((Event("a", time, 2, 9),), mark)]
    stepper = run(epochs, way, gap, keep, final=final)
    events = accepted(epochs, lambda event, before: late_for_session(event, before, gap, keep))
    assert stepper.seen(REVISION) == expected(events, gap, mark if final else None)


@given(histories(), ways(), gaps, st.booleans())
def test_the_sessions_do_not_depend_on_where_the_epochs_are_cut(
    epochs: tuple[Epoch, ...], way: Way, gap: int, final: bool
) -> None:
    cut_answers = run(unhurried(epochs), way, gap, 5, final=final)
    whole_answers = run(recut(epochs), Way(), gap, 5, final=final)
    assert (
        cut_answers.answers == whole_answers.answers
    )  # also in their revisions: nothing was corrected after it was final


@given(histories(), ways(), gaps, keeps, st.booleans())
def test_sessions_that_had_ended_are_counted_when_they_are_corrected(
    epochs: tuple[Epoch, ...], way: Way, gap: int, keep: int, final: bool
) -> None:
    stepper = run(epochs, way, gap, keep, final=final)
    corrected = 0
    for given_, (_, before) in zip(stepper.given, befores(epochs), strict=True):
        corrected += sum(row["_weight"] < 0 and row[END] <= before for row in given_)
        for row in given_:
            taken_back = [old_row for old_row in given_ if old_row["_weight"] < 0 and old_row["key"] == row["key"]]
            was_final = [
                old_row[REVISION] for old_row in taken_back if old_row[END] <= before and _inside(old_row, row)
            ]
            if row["_weight"] > 0 and was_final:
                assert row[REVISION] == max(was_final) + 1
    assert stepper.counts["corrected"] == corrected


def test_a_session_that_was_joined_to_another_does_not_come_back_when_it_would_have_expired() -> None:
    times_and_marks = [((-9, -5), NO_TIME), ((-10,), NO_TIME), ((-7,), NO_TIME), ((), 0), ((0,), 0)]
    epochs = [Epoch(tuple(Event("a", time, 1, time) for time in times), mark) for times, mark in times_and_marks]
    stepper = run(epochs, Way(growth=0), 3, 0, final=False)
    assert stepper.seen(REVISION) == expected((event for epoch in epochs for event in epoch.events), 3, None)


def _inside(inner: Row, outer: Row) -> bool:
    return bool(outer[START] <= inner[START] and inner[END] <= outer[END])


@given(histories(), ways())
def test_expired_sessions_leave_the_state(epochs: tuple[Epoch, ...], way: Way) -> None:
    more = [Epoch((), 10_000), Epoch((Event("a", 20_000, 1, 0),), 10_001)]
    assert run([*epochs, *more], way, 5, 10, final=True).rows == 1


def test_a_session_is_the_same_in_whatever_order_its_pieces_come() -> None:
    values = [0.1, 0.2, 0.3, 1e16, 1.0, -1e16, 1e-9, 3.3]
    rows = [
        hashed(
            {"key": "k", "sum": value, "least": value, "most": value, START: 9 * n, LAST: 9 * n, COUNT: 1, EVENTS: 1},
            Way(),
            "k",
        )
        for n, value in enumerate(values)
    ]
    found = set()
    for attempt in range(20):
        random.Random(attempt).shuffle(rows)
        with stepping(Sessions("one", RULES, 10, 0), schema(pa.float64()), COLUMNS, Way()) as stepper:
            stepper.step([], NO_TIME)
            (answer,) = stepper.step(rows, NO_TIME)
            found.add(answer["sum"])
    assert len(found) == 1


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [2**62, 2**62]),
        (pa.decimal128(38, 2), [Decimal("9" * 36), Decimal(1)]),
        (pa.decimal128(6, 2), [Decimal("9999.99"), Decimal("0.01")]),
    ],
)
def test_a_sum_that_does_not_fit_is_refused_by_its_name(type_: pa.DataType, values: list[Any]) -> None:
    operator = Sessions("one", RULES, 10, 0, titles={"sum": "sum(amount)"})
    with stepping(operator, schema(type_), COLUMNS, Way()) as stepper:
        row = {"key": "k", START: 0, LAST: 0, COUNT: 1, EVENTS: 1}
        rows = [hashed({**row, **dict.fromkeys(RULES, value)}, Way(), "k") for value in values]
        rows[1] |= {START: 5, LAST: 5}
        with pytest.raises(RowError, match=r"sum\(amount\): the sum is too large for its type"):
            stepper.step(rows, NO_TIME)


@pytest.mark.parametrize(
    ("type_", "values", "total"),
    [
        (pa.decimal128(38, 2), [Decimal("9" * 35 + ".50"), None, Decimal("0.01")], Decimal("9" * 35 + ".51")),
        (pa.decimal128(9, 2), [Decimal("1.50"), None, Decimal("-0.50")], Decimal("1.00")),
        (pa.float64(), [1.0, float("nan"), None, -0.0], float("nan")),
        (pa.int64(), [3, None, -4], -1),
    ],
)
def test_sessions_know_the_values_of_every_type_that_can_be_added(
    type_: pa.DataType, values: list[Any], total: Any
) -> None:
    with stepping(Sessions("one", RULES, 10, 0), schema(type_), list(RULES), Way()) as stepper:
        for number, value in enumerate(values):
            row = {"key": None, START: 9 * number, LAST: 9 * number, COUNT: 1, EVENTS: 1, **dict.fromkeys(RULES, value)}
            stepper.add_up(stepper.step([hashed(row, Way(), None)], NO_TIME))
    present = [value for value in values if value is not None]
    by_spark = sorted(present, key=lambda value: (value != value, value if value == value else 0))
    assert stepper.answers == Counter({(frozen(total), frozen(by_spark[0]), frozen(by_spark[-1])): 1})
