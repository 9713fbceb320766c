"""Sliding windows and sessions for any aggregate, against lists of all values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators import row_windows
from penstock.engine.operators.contract import EVENTS, HASH, MOMENT, REVISION, ROW_HASH, SECOND_HASH
from penstock.engine.operators.row_windows import RowWindows
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from penstock.flow.plan import Session
from tests.engine.operators.evaluating import ANSWER, ANSWERS, evaluated, replacing, sorted_values, timed_rows
from tests.engine.operators.stepping import (
    NO_TIME,
    Answers,
    Epoch,
    Event,
    Stepper,
    Way,
    accepted,
    befores,
    histories,
    late_for_session,
    living,
    recut,
    sessions,
    stepping,
    unhurried,
    ways,
)

Shape = Literal["sliding", "session"]
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        *((name, pa.int64()) for name in ("value", MOMENT, COUNT, EVENTS, HASH, SECOND_HASH, ROW_HASH)),
    ]
)
shapes: st.SearchStrategy[Shape] = st.sampled_from(["sliding", "session"])
lengths = st.sampled_from([3, 7, 10])
keeps = st.sampled_from([0, 5, 50])


def run(
    epochs: Sequence[Epoch], way: Way, shape: Shape, length: int, keep: int, *, final: bool
) -> tuple[Stepper, Stepper]:
    """What keeps the rows, and what keeps the answers."""
    longer = keep + (Session(length).reach if shape == "session" else 0)
    with (
        stepping(RowWindows("rows", shape, length, keep, final), SCHEMA, [], way) as kept,
        stepping(replacing(longer), ANSWERS, ANSWER, way) as answers,
    ):
        for epoch in epochs:
            touched = kept.step(timed_rows(epoch.events, way), epoch.watermark)
            answers.add_up(answers.step(evaluated(touched, way), epoch.watermark))
    return kept, answers


def expected(events: Iterable[Event], shape: Shape, length: int, mark: int | None) -> Answers:
    """The answers over all events; with a mark only those of windows that have ended by then."""
    answers: Answers = Counter()
    events = list(events)
    found: list[tuple[str | None, int, int, list[int | None]]] = []
    if shape == "session":
        for members in sessions(events, length):
            values = [event.value for event in members]
            found.append((members[0].key, members[0].time, members[-1].time + length, values))
    else:
        for key, at in {(event.key, event.time) for event in events}:
            inside = [event.value for event in events if event.key == key and at - length < event.time <= at]
            found.append((key, at - length, at, inside))
    for key, start, end, values in found:
        if mark is None or end <= mark:
            answers[key, start, end, tuple(sorted_values(values))] += 1
    return answers


def not_late(epochs: Sequence[Epoch], shape: Shape, length: int, keep: int) -> list[Event]:
    if shape == "session":
        return accepted(epochs, lambda event, before: late_for_session(event, before, length, keep))
    return accepted(epochs, lambda event, before: event.time + keep <= before)


@given(histories(retracts=True), ways(), shapes, lengths, keeps, st.booleans())
def test_windows_are_evaluated_over_all_events_that_were_not_late(
    epochs: tuple[Epoch, ...], way: Way, shape: Shape, length: int, keep: int, final: bool
) -> None:
    kept, answers = run(epochs, way, shape, length, keep, final=final)
    events = not_late(epochs, shape, length, keep)
    mark = max(epoch.watermark for epoch in epochs) if final else None
    assert answers.seen(REVISION) == expected(living(events), shape, length, mark)
    came = sum(len(epoch.events) for epoch in epochs)
    assert kept.counts["events"] == came
    assert kept.counts["late"] == came - len(events)


@given(ways(), shapes, lengths, keeps, st.booleans(), st.data())
def test_an_event_that_is_not_late_finds_the_events_that_came_long_before(
    way: Way, shape: Shape, length: int, keep: int, final: bool, data: st.DataObject
) -> None:
    mark = data.draw(st.integers(60, 80))
    reached = 2 * length if shape == "session" else 0
    time = data.draw(st.integers(mark - reached - keep, mark))
    first = Event("a", data.draw(st.integers(time - length + 1, time)), 1, 0)
    quiet = [Epoch((Event("b", 1000 + number, 1, number),), mark) for number in range(3)]
    epochs = [Epoch((first,), NO_TIME), *quiet, Epoch((Event("a", time, 2, 9),), mark)]
    _, answers = run(epochs, way, shape, length, keep, final=final)
    events = not_late(epochs, shape, length, keep)
    assert answers.seen(REVISION) == expected(events, shape, length, mark if final else None)


@given(histories(retracts=True), ways(), shapes, lengths, st.booleans())
def test_the_answers_do_not_depend_on_where_the_epochs_are_cut(
    epochs: tuple[Epoch, ...], way: Way, shape: Shape, length: int, final: bool
) -> None:
    _, cut_answers = run(unhurried(epochs), way, shape, length, 5, final=final)
    _, whole_answers = run(recut(epochs), Way(), shape, length, 5, final=final)
    assert cut_answers.answers == whole_answers.answers


@given(ways(), st.booleans(), st.integers(1, 30))
def test_a_session_that_lasts_longer_than_rows_are_kept_stays_whole(way: Way, final: bool, step: int) -> None:
    events = [Event("a", time, time, time) for time in range(0, 300, 9)]
    batches = [events[start : start + step] for start in range(0, len(events), step)]
    epochs = [Epoch(tuple(batch), batch[-1].time) for batch in batches]
    _, answers = run([*epochs, Epoch((), 1000)], way, "session", 10, 0, final=final)
    assert answers.seen(REVISION) == Counter({("a", 0, 297 + 10, tuple(event.value for event in events)): 1})


@given(histories(retracts=True), ways(), shapes, lengths, keeps, st.booleans())
def test_answers_that_were_final_are_counted_when_they_are_corrected(
    epochs: tuple[Epoch, ...], way: Way, shape: Shape, length: int, keep: int, final: bool
) -> None:
    kept, answers = run(epochs, way, shape, length, keep, final=final)
    corrected = sum(
        row["_weight"] < 0 and row[END] <= before
        for given_, (_, before) in zip(answers.given, befores(epochs), strict=True)
        for row in given_
    )
    assert kept.counts["corrected"] == corrected


@given(histories(), ways(), shapes, lengths)
def test_windows_that_did_not_change_are_not_evaluated(
    epochs: tuple[Epoch, ...], way: Way, shape: Shape, length: int
) -> None:
    kept, _ = run(epochs, way, shape, length, 50, final=False)
    for epoch, given_ in zip(epochs, kept.given, strict=True):
        for row in given_:
            near = [event for event in epoch.events if event.key == row["key"]]
            assert any(row[START] - length < event.time < row[END] + length for event in near)


@given(histories(retracts=True), ways(), shapes, lengths)
def test_rows_go_out_in_pieces_without_being_lost(
    epochs: tuple[Epoch, ...], way: Way, shape: Shape, length: int
) -> None:
    whole, _ = run(epochs, way, shape, length, 5, final=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_windows, "PIECE_ROWS", 2)
        parted, _ = run(epochs, way, shape, length, 5, final=False)
    for rows_at_once, rows_in_pieces in zip(whole.given, parted.given, strict=True):
        assert Counter(tuple(row.values()) for row in rows_at_once) == Counter(
            tuple(row.values()) for row in rows_in_pieces
        )


@given(histories(), shapes)
def test_expired_rows_leave_the_state(epochs: tuple[Epoch, ...], shape: Shape) -> None:
    more = [Epoch((), 10_000), Epoch((Event("a", 20_000, 1, 0),), 10_001)]
    kept, answers = run([*epochs, *more], Way(growth=1000), shape, 5, 10, final=False)
    assert kept.rows == answers.rows == 1
