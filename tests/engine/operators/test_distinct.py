"""The first row of those that agree, against looking through all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import DEADLINE, EVENTS, HASH, MOMENT, ROW_HASH, SECOND_HASH
from penstock.engine.operators.distinct import Distinct
from penstock.engine.state.columns import COUNT
from tests.engine.operators.evaluating import counted
from tests.engine.operators.stepping import (
    NO_TIME,
    Answers,
    Epoch,
    Event,
    Row,
    Stepper,
    Way,
    accepted,
    histories,
    living,
    recut,
    stepping,
    unhurried,
    ways,
)

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        *(
            (name, pa.int64())
            for name in ("value", "place", MOMENT, DEADLINE, COUNT, EVENTS, HASH, SECOND_HASH, ROW_HASH)
        ),
    ]
)
COLUMNS = ["key", "value", "place", MOMENT]
NEVER = 2**63 - 1
withins = st.sampled_from([None, 1, 7, 20])
keeps = st.sampled_from([0, 10, 100])


def rows(events: Iterable[Event], way: Way, keep: int | None) -> list[Row]:
    given_ = [
        {
            "key": event.key,
            "value": event.value,
            "place": event.number,
            MOMENT: event.time,
            DEADLINE: NEVER if keep is None else event.time + keep,
            COUNT: event.weight,
            EVENTS: 1,
        }
        for event in events
    ]
    return counted(given_, way, ["key"])


def run(epochs: Sequence[Epoch], way: Way, within: int | None, keep: int, *, grows: bool) -> Stepper:
    operator = Distinct("rows", within, keep, ("place",), grows)
    with stepping(operator, SCHEMA, COLUMNS, way) as stepper:
        for epoch in epochs:
            stepper.add_up(stepper.step(rows(epoch.events, way, keep if within else None), epoch.watermark))
    return stepper


def expected(events: Iterable[Event], within: int | None) -> Answers:
    """The rows before which none of their key came less than `within` earlier."""
    answers: Answers = Counter()
    last: dict[str | None, int] = {}
    for event in sorted(events, key=lambda event: (event.time, event.number)):
        before = last.get(event.key)
        if before is None or (within is not None and event.time - before >= within):
            answers[event.key, event.value, event.number, event.time] += 1
        last[event.key] = event.time
    return answers


@given(histories(), ways(), withins, keeps)
def test_the_first_row_of_each_burst_is_kept(
    epochs: tuple[Epoch, ...], way: Way, within: int | None, keep: int
) -> None:
    stepper = run(epochs, way, within, keep, grows=True)
    events = accepted(epochs, lambda event, before: within is not None and event.time + keep <= before)
    assert stepper.answers == expected(events, within)
    came = sum(len(epoch.events) for epoch in epochs)
    assert stepper.counts["events"] == came
    assert stepper.counts["late"] == came - len(events)
    assert stepper.counts["duplicates"] == len(events) - stepper.answers.total()


@given(histories(retracts=True), ways(), withins, keeps)
def test_another_row_becomes_the_first_when_it_is_taken_back(
    epochs: tuple[Epoch, ...], way: Way, within: int | None, keep: int
) -> None:
    stepper = run(epochs, way, within, keep, grows=False)
    events = accepted(epochs, lambda event, before: within is not None and event.time + keep <= before)
    assert stepper.answers == expected(living(events), within)


@given(ways(), st.sampled_from([2, 7, 20]), keeps, st.data())
def test_a_row_that_is_not_late_is_left_out_for_one_that_came_long_before(
    way: Way, within: int, keep: int, data: st.DataObject
) -> None:
    mark = data.draw(st.integers(60, 80))
    time = data.draw(st.integers(mark - keep, mark))
    first = Event("a", data.draw(st.integers(time - within, time)), 1, 0)
    quiet = [Epoch((Event("b", 1000 * number, 1, number),), mark) for number in range(1, 4)]
    epochs = [Epoch((first,), NO_TIME), *quiet, Epoch((Event("a", time, 2, 9),), mark)]
    events = accepted(epochs, lambda event, before: event.time + keep <= before)
    assert run(epochs, way, within, keep, grows=True).answers == expected(events, within)


@given(histories(retracts=True), ways(), withins)
def test_the_first_rows_do_not_depend_on_where_the_epochs_are_cut(
    epochs: tuple[Epoch, ...], way: Way, within: int | None
) -> None:
    cut_answers = run(unhurried(epochs), way, within, 10, grows=False)
    assert cut_answers.answers == run(recut(epochs), Way(), within, 10, grows=False).answers


@given(histories(), ways())
def test_for_ever_only_the_first_row_of_each_key_is_kept(epochs: tuple[Epoch, ...], way: Way) -> None:
    stepper = run(epochs, way, None, 0, grows=True)
    if way.growth == 1000:  # where all runs are merged, the state has each row once
        assert stepper.rows == stepper.answers.total()


@given(histories(), ways())
def test_rows_that_no_other_can_follow_any_more_leave_the_state(epochs: tuple[Epoch, ...], way: Way) -> None:
    more = [Epoch((), 10_000), Epoch((Event("a", 20_000, 1, 99),), 10_001)]
    assert run([*epochs, *more], way, 5, 10, grows=True).rows == 1
