"""Aggregates that add up, against sums made over all events at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import EVENTS, HASH, REVISION, SECOND_HASH, WEIGHT
from penstock.engine.operators.windows import END, START, WindowOrder
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
    Windows,
    befores,
    frozen,
    hashed,
    histories,
    living,
    recut,
    stepping,
    unhurried,
    ways,
    windows,
)

RULES = {"sum": "sum", "number": "sum"}
GROWING = {**RULES, "least": "min", "most": "max"}


def parts(events: Iterable[Event], windows: Windows | None, way: Way, rules: Iterable[str]) -> list[Row]:
    """What Spark hands over: one row for each group and window with what the events add up to."""
    groups: dict[tuple[str | None, int], list[tuple[Event, bool]]] = {}
    for event in events:
        for number, start in enumerate(windows.starts(event.time) if windows else [0]):
            groups.setdefault((event.key, start), []).append((event, number == 0))
    rows = []
    for (key, start), members in groups.items():
        values = [event for event, _ in members if event.value is not None]
        row: Row = {
            "key": key,
            COUNT: sum(event.weight for event, _ in members),
            EVENTS: sum(last for _, last in members),
        }
        row["sum"] = sum(event.value * event.weight for event in values) if values else None
        row["number"] = sum(event.weight for event in values)
        if "least" in rules:
            row["least"] = min((event.value for event in values), default=None)
            row["most"] = max((event.value for event in values), default=None)
        if windows:
            row |= {START: start, END: start + windows.size}
        rows.append(hashed(row, way, key, start))
    return rows


def schema(windows: Windows | None, rules: Iterable[str]) -> pa.Schema:
    names = [COUNT, EVENTS, *rules, *([START, END] if windows else []), HASH, SECOND_HASH]
    return pa.schema([("key", pa.string()), *((name, pa.int64()) for name in names)])


def run(
    epochs: Sequence[Epoch], windows: Windows | None, way: Way, *, final: bool = False, rules: dict[str, Any] = RULES
) -> Stepper:
    operator = Accumulate("one", rules, windows.order if windows else None, final=final)
    columns = ["key", *([START, END] if windows else []), COUNT, *rules, REVISION]
    with stepping(operator, schema(windows, rules), columns, way) as stepper:
        for epoch in epochs:
            stepper.add_up(stepper.step(parts(epoch.events, windows, way, rules), epoch.watermark))
    return stepper


def expected(
    epochs: Sequence[Epoch], windows: Windows | None, *, final: bool, rules: dict[str, Any] = RULES
) -> Answers:
    """The answers over all events that were not late for their window."""
    groups: dict[tuple[str | None, int], list[Event]] = {}
    for epoch, before in befores(epochs):
        for event in epoch.events:
            for start in windows.starts(event.time) if windows else [0]:
                if windows is None or start + windows.size + windows.keep > before:
                    groups.setdefault((event.key, start), []).append(event)
    answers: Answers = Counter()
    mark = max(epoch.watermark for epoch in epochs)
    for (key, start), members in groups.items():
        left = living(members)
        if left and not (final and windows and start + windows.size > mark):
            values = [event.value for event in left if event.value is not None]
            sums = [sum(values) if values or _had_values(members) else None, len(values)]
            if "least" in rules:
                sums += [min(values, default=None), max(values, default=None)]
            bounds = [start, start + windows.size] if windows else []
            answers[(key, *bounds, len(left), *sums)] += 1
    return answers


def _had_values(members: list[Event]) -> bool:
    """A sum whose values were all taken back is 0; that there are none says the number beside it."""
    return any(event.value is not None for event in members)


@given(histories(), ways())
def test_groups_have_the_sums_of_all_their_events(epochs: tuple[Epoch, ...], way: Way) -> None:
    stepper = run(epochs, None, way, rules=GROWING)
    assert stepper.seen(REVISION) == expected(epochs, None, final=False, rules=GROWING)
    assert stepper.counts["events"] == sum(len(epoch.events) for epoch in epochs)


@given(histories(retracts=True), ways())
def test_groups_follow_events_that_are_taken_back(epochs: tuple[Epoch, ...], way: Way) -> None:
    stepper = run(epochs, None, way)
    seen = Counter({_without_empty_sum(row): weight for row, weight in stepper.seen(REVISION).items()})
    wanted = Counter({_without_empty_sum(row): weight for row, weight in expected(epochs, None, final=False).items()})
    assert seen == wanted


def _without_empty_sum(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A sum over no values is 0 or null, by when its values were taken back; the number beside it says that."""
    *rest, sum_, number = row
    return (*rest, sum_ if number else None, number)


@given(histories(retracts=True), windows, ways(), st.booleans())
def test_windows_have_the_sums_of_all_events_that_were_not_late(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    stepper = run(epochs, windows, way, final=final)
    seen = Counter({_without_empty_sum(row): weight for row, weight in stepper.seen(REVISION).items()})
    wanted = expected(epochs, windows, final=final)
    assert seen == Counter({_without_empty_sum(row): weight for row, weight in wanted.items()})


@given(histories(), windows, ways(), st.booleans())
def test_windows_have_the_least_and_greatest_values_of_their_events(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    stepper = run(epochs, windows, way, final=final, rules=GROWING)
    assert stepper.seen(REVISION) == expected(epochs, windows, final=final, rules=GROWING)


@given(histories(), windows, ways(), st.booleans())
def test_the_answers_do_not_depend_on_where_the_epochs_are_cut(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    cut_answers = run(unhurried(epochs), windows, way, final=final, rules=GROWING)
    whole_answers = run(recut(epochs), windows, Way(), final=final, rules=GROWING)
    assert (
        cut_answers.answers == whole_answers.answers
    )  # also in their revisions: nothing was corrected after it was final


@given(histories(retracts=True), windows, ways(), st.booleans())
def test_every_event_is_counted_once_and_late_ones_are_those_whose_last_window_is_over(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    stepper = run(epochs, windows, way, final=final)
    late = [
        event
        for epoch, before in befores(epochs)
        for event in epoch.events
        if windows.starts(event.time) and windows.starts(event.time)[0] + windows.size + windows.keep <= before
    ]
    inside = [event for epoch in epochs for event in epoch.events if windows.starts(event.time)]
    assert stepper.counts["events"] == len(inside)
    assert stepper.counts["late"] == len(late)


@given(histories(retracts=True), windows, ways(), st.booleans())
def test_a_revision_says_how_often_an_answer_was_corrected_after_its_window_had_closed(
    epochs: tuple[Epoch, ...], windows: Windows, way: Way, final: bool
) -> None:
    stepper = run(epochs, windows, way, final=final)
    revisions: Counter[tuple[str | None, int]] = Counter()
    members: dict[tuple[str | None, int], list[Event]] = {}
    corrected = 0
    for epoch, before in befores(epochs):
        touched: dict[tuple[str | None, int], list[Event]] = {}
        for event in epoch.events:
            for start in windows.starts(event.time):
                if start + windows.size + windows.keep > before:
                    touched.setdefault((event.key, start), []).append(event)
        for group, events in touched.items():
            if living(members.get(group, [])) and group[1] + windows.size <= before:
                revisions[group] += 1
                corrected += 1
            members.setdefault(group, []).extend(events)
            if not living(members[group]):
                revisions[group] = 0
    found = {row[:2]: row[-1] for row in stepper.answers}
    assert found == {group: revisions[group] for group in found}
    assert stepper.counts["corrected"] == corrected


@given(histories(retracts=True), st.one_of(st.none(), windows), ways(), st.booleans())
def test_whoever_replaces_answers_by_key_sees_the_same(
    epochs: tuple[Epoch, ...], windows: Windows | None, way: Way, final: bool
) -> None:
    final = final and windows is not None
    operator = Accumulate("one", RULES, windows.order if windows else None, final=final, upserts=True)
    held: dict[tuple[Any, ...], Row] = {}
    with stepping(operator, schema(windows, RULES), ["key"], way) as stepper:
        for epoch in epochs:
            given = stepper.step(parts(epoch.events, windows, way, RULES), epoch.watermark)
            for row in sorted(given, key=lambda row: row[WEIGHT]):
                key = (row["key"], row.get(START))
                if row[WEIGHT] > 0:
                    held[key] = row
                else:
                    assert held.pop(key) == {**row, WEIGHT: 1}
    whole = run(epochs, windows, way, final=final)
    columns = ["key", *([START, END] if windows else []), COUNT, *RULES, REVISION]
    assert Counter(tuple(row[name] for name in columns) for row in held.values()) == whole.answers


@given(histories(), windows, ways())
def test_expired_windows_leave_the_state(epochs: tuple[Epoch, ...], windows: Windows, way: Way) -> None:
    end = Epoch((), 10_000)
    stepper = run([*epochs, end, Epoch((Event("a", 20_000, 1, 0),), 10_001)], windows, way)
    assert stepper.rows == len(windows.starts(20_000))


DOUBLES = [0.1, 0.2, 0.3, 1e16, -1e16, 1.0, 3.3, float("inf"), -0.0]


@given(st.permutations(DOUBLES), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.booleans())
def test_sums_of_doubles_are_taken_back_as_they_were_given(values: list[float], quiet: list[int], final: bool) -> None:
    # Values come before the window closes, in runs that are not merged; then come other groups, and runs are merged;
    # then the answer is corrected.
    epochs: list[tuple[float | None, int]] = [*((value, 0) for value in values[:4]), (None, 10)]
    epochs += [*((None, 10) for _ in quiet), (0.7, 10), (0.1, 10)]
    other_counts = [40, 16, 7, 3, 0, *quiet, 0, 0]
    operator = Accumulate("one", {"x": "sum"}, WindowOrder(10, 10, 1000), final=final)
    with stepping(operator, _typed(pa.float64()), ["key", COUNT, "x"], Way(growth=1)) as stepper:
        for number, ((value, mark), more) in enumerate(zip(epochs, other_counts, strict=True)):
            rows = [(f"{number}-{n}", 0.5) for n in range(more)] + ([] if value is None else [("k", value)])
            parts = [{"key": key, "x": x, COUNT: 1, EVENTS: 1, START: 0, END: 10} for key, x in rows]
            given_ = stepper.step([hashed(row, Way(), row["key"]) for row in parts], mark)
            stepper.add_up(given_)  # which fails if something else is taken back than was given
    assert ("k", 6) in {row[:2] for row in stepper.answers}


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "decimal": (pa.decimal128(38, 2), [Decimal("9" * 36 + ".98"), Decimal("0.01"), None, Decimal(-5)]),
    "decimal of few digits": (pa.decimal128(12, 2), [Decimal("12.50"), Decimal("0.01"), None]),
    "double": (pa.float64(), [1.5, float("nan"), None, -0.0, 0.0, float("inf")]),
    "string": (pa.string(), ["b", "", None, "ä"]),
    "binary": (pa.binary(), [b"b", b"", None]),
    "date": (pa.date32(), [20, 3, None]),
    "timestamp": (pa.timestamp("us", "UTC"), [20, 3, None]),
    "local timestamp": (pa.timestamp("us"), [20, 3, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [3, -3, None]),
}


@pytest.mark.parametrize("rule", ["min", "max"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("final", [False, True])
def test_least_and_greatest_values_of_every_type_are_those_that_spark_finds(name: str, rule: str, final: bool) -> None:
    type_, values = TYPES[name]
    order = WindowOrder(10, 10, 1000)
    with stepping(
        Accumulate("one", {"x": rule}, order, final=final), _typed(type_), ["key", "x"], Way(growth=0)
    ) as stepper:
        for number, value in enumerate(values):
            row = {"key": "k", "x": value, COUNT: 1, EVENTS: 1, START: 0, END: 10}
            other_row = {**row, "x": None, "key": str(number)}
            rows = [hashed(row, Way(), "k"), hashed(other_row, Way(), number)]
            stepper.add_up(stepper.step(rows, NO_TIME if number < 2 else 10))
        stepper.add_up(stepper.step([], 10))
        typed = [value for value in pa.array(values, type_).to_pylist() if value is not None]
        best = (min if rule == "min" else max)(
            typed, key=lambda value: (value != value, value if value == value else 0)
        )
        assert stepper.answers == Counter({("k", frozen(best)): 1} | {(str(n), None): 1 for n in range(len(values))})


def _typed(type_: pa.DataType) -> pa.Schema:
    names = [COUNT, EVENTS, START, END, HASH, SECOND_HASH]
    return pa.schema([("key", pa.string()), ("x", type_), *((name, pa.int64()) for name in names)])


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [2**62, 2**62]),
        (pa.int64(), [-(2**62), -(2**62) - 1]),
        (pa.decimal128(38, 2), [Decimal("9" * 36), Decimal(1)]),
        (pa.decimal128(5, 2), [Decimal("999.99"), Decimal("0.01")]),
    ],
)
@pytest.mark.parametrize("final", [False, True])
def test_a_sum_that_does_not_fit_is_refused_by_its_name(type_: pa.DataType, values: list[Any], final: bool) -> None:
    operator = Accumulate("one", {"_a0": "sum"}, WindowOrder(10, 10, 1000), final=final, titles={"_a0": "sum(amount)"})
    columns = pa.schema([field.with_name("_a0") if field.name == "x" else field for field in _typed(type_)])
    with stepping(operator, columns, ["_a0"], Way(growth=0)) as stepper:
        row = {"key": "k", COUNT: 1, EVENTS: 1, START: 0, END: 10}
        stepper.step([hashed({**row, "_a0": values[0]}, Way(), "k")], NO_TIME)
        with pytest.raises(RowError, match=r"^sum\(amount\): the sum is too large for its type .*; .* to be added"):
            stepper.step([hashed({**row, "_a0": values[1]}, Way(), "k")], 10)


def test_an_answer_that_was_corrected_is_not_added_to_its_parts_again() -> None:
    operator = Accumulate("one", {"x": "sum"}, WindowOrder(10, 10, 1000), final=True)
    row = {"key": "k", COUNT: 1, EVENTS: 1, START: 0, END: 10}
    with stepping(operator, _typed(pa.int64()), ["x"], Way(growth=1000)) as stepper:
        for value, mark in ((2**62, NO_TIME), (5, 10), (6, 11), (7, 12)):  # twice the first would be too large
            stepper.add_up(stepper.step([hashed({**row, "x": value}, Way(), "k")], mark))
    assert stepper.answers == Counter({(2**62 + 18,): 1})


def test_a_sum_up_to_the_last_digit_is_given() -> None:
    type_ = pa.decimal128(38, 0)
    with stepping(Accumulate("one", {"x": "sum"}), _typed(type_), ["x"], Way()) as stepper:
        for value in (Decimal("9" * 38), Decimal(-1), Decimal(1)):
            stepper.add_up(stepper.step([hashed({"x": value, COUNT: 1, EVENTS: 1}, Way(), "k")], NO_TIME))
        assert stepper.answers == Counter({(Decimal("9" * 38),): 1})
