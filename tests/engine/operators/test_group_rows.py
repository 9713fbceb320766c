"""Aggregates that are evaluated over all rows of the groups that changed, against lists of all values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import EVENTS, HASH, REVISION, ROW_HASH, SECOND_HASH
from penstock.engine.operators.group_rows import MULTIPLICITY, GroupRows
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from tests.engine.operators.evaluating import ANSWER, ANSWERS, counted, evaluated, replacing, sorted_values
from tests.engine.operators.stepping import (
    Answers,
    Epoch,
    Event,
    Row,
    Stepper,
    Way,
    Windows,
    befores,
    histories,
    living,
    recut,
    stepping,
    unhurried,
    ways,
    windows,
)


def rows(events: Iterable[Event], windows: Windows | None, way: Way) -> list[Row]:
    """What Spark hands over: each different row of a group once."""
    found = []
    for event in events:
        for number, start in enumerate(windows.starts(event.time) if windows else [0]):
            row: Row = {"key": event.key, "value": event.value, COUNT: event.weight, EVENTS: int(number == 0)}
            found.append(row | ({START: start, END: start + windows.size} if windows else {}))
    return counted(found, way, ["key", START] if windows else ["key"])


def schema(windows: Windows | None) -> pa.Schema:
    names = ["value", COUNT, EVENTS, *([START, END] if windows else []), HASH, SECOND_HASH, ROW_HASH]
    return pa.schema([("key", pa.string()), *((name, pa.int64()) for name in names)])


def run(epochs: Sequence[Epoch], windows: Windows | None, way: Way, *, final: bool) -> tuple[Stepper, Stepper]:
    """What keeps the rows, and what keeps the answers."""
    operator = GroupRows("rows", windows.order if windows else None, final=final)
    with (
        stepping(operator, schema(windows), [], way) as kept,
        stepping(replacing(windows.keep if windows else None), ANSWERS, ANSWER, way) as answers,
    ):
        for epoch in epochs:
            touched = kept.step(rows(epoch.events, windows, way), epoch.watermark)
            answers.add_up(answers.step(evaluated(touched, way), epoch.watermark))
    return kept, answers


def expected(epochs: Sequence[Epoch], windows: Windows | None, *, final: bool) -> Answers:
    groups: dict[tuple[str | None, int], list[Event]] = {}
    for epoch, before in befores(epochs):
        for event in epoch.events:
            for start in windows.starts(event.time) if windows else [0]:
                if windows is None or start + windows.size + windows.keep > before:
                    groups.setdefault((event.key, start), []).append(event)
    answers: Answers = Counter()
    mark = max(epoch.watermark for epoch in epochs)
    for (key, start), members in groups.items():
        values = tuple(sorted_values(event.value for event in living(members)))
        bounds = (start, start + windows.size) if windows else (None, None)
        if values and not (final and windows and start + windows.size > mark):
            answers[(key, *bounds, values)] += 1
    return answers


@given(histories(retracts=True), ways())
def test_groups_are_evaluated_over_all_their_rows(epochs: tuple[Epoch, ...], way: Way) -> None:
    kept, answers = run(epochs, None, way, final=False)
    assert answers.seen(REVISION) == expected(epochs, None, final=False)
    assert kept.counts["events"] == sum(len(epoch.events) for epoch in epochs)


@given(histories(retracts=True), windows, ways(), st.booleans())
def test_windows_are_evaluated_over_all_rows_that_were_not_late(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    kept, answers = run(epochs, windows, way, final=final)
    assert answers.seen(REVISION) == expected(epochs, windows, final=final)
    late = [
        event
        for epoch, before in befores(epochs)
        for event in epoch.events
        if (starts := windows.starts(event.time)) and starts[0] + windows.size + windows.keep <= before
    ]
    assert kept.counts["late"] == len(late)


@given(histories(retracts=True), windows, ways(), st.booleans())
def test_the_answers_do_not_depend_on_where_the_epochs_are_cut(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    _, cut_answers = run(unhurried(epochs), windows, way, final=final)
    _, whole_answers = run(recut(epochs), windows, Way(), final=final)
    assert cut_answers.answers == whole_answers.answers


@given(histories(), windows, ways(), st.booleans())
def test_only_groups_that_changed_are_evaluated(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    kept, _ = run(epochs, windows, way, final=final)
    for (epoch, before), given_ in zip(befores(epochs), kept.given, strict=True):
        found = {(row["key"], row[START]) for row in given_}
        touched = {(event.key, start) for event in epoch.events for start in windows.starts(event.time)}
        for key, start in found:
            closes = final and before < start + windows.size <= epoch.watermark
            assert closes or (key, start) in touched


@given(histories(retracts=True), windows, ways())
def test_answers_that_were_final_are_counted_when_they_are_corrected(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way
) -> None:
    kept, answers = run(epochs, windows, way, final=True)
    taken_back = sum(row["_weight"] < 0 for given_ in answers.given for row in given_)
    assert kept.counts["corrected"] == taken_back


@given(histories(retracts=True), ways())
def test_a_group_that_lost_its_last_row_is_sent_as_an_empty_one(epochs: tuple[Epoch, ...], way: Way) -> None:
    kept, _ = run(epochs, None, way, final=False)
    held: dict[str | None, int] = {}
    for given_ in kept.given:
        touched = {row["key"] for row in given_}
        assert all(any(row["key"] == key and row[MULTIPLICITY] == 0 for row in given_) for key in touched)
        held |= {key: sum(row[MULTIPLICITY] for row in given_ if row["key"] == key) for key in touched}
    events = living([event for epoch in epochs for event in epoch.events])
    assert +Counter(held) == Counter(event.key for event in events)


@given(histories(), windows, ways())
def test_expired_rows_and_answers_leave_the_state(epochs: tuple[Epoch, ...], windows: Windows, way: Way) -> None:
    more = [Epoch((), 10_000), Epoch((Event("a", 20_000, 1, 0),), 10_001)]
    kept, answers = run([*epochs, *more], windows, way, final=False)
    assert kept.rows == answers.rows == len(windows.starts(20_000))
