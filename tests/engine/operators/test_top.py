"""The first rows of each group, against sorting all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import HASH, ROW_HASH, SECOND_HASH
from penstock.engine.operators.top import RANK, Top
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
    frozen,
    hash_of,
    histories,
    living,
    recut,
    stepping,
    ways,
)

COLUMNS = ["key", "value", "time", RANK]


LONG = pa.int64()


def schema(type_: pa.DataType = LONG) -> pa.Schema:
    names = ["time", COUNT, "_events", HASH, SECOND_HASH, ROW_HASH]
    return pa.schema(
        [("key", pa.string()), ("value", type_), ("_o0", type_), ("_o0_kind", pa.int32())]
        + [(name, pa.int64()) for name in names]
    )


def rows(events: Iterable[tuple[Any, Any, int, int]], way: Way) -> list[Row]:
    """What Spark hands over for events of key, value, time and weight that are ordered by their value."""
    given_ = [
        {"key": key, "value": value, "_o0": value, "_o0_kind": kind(value), "time": time, COUNT: weight, "_events": 1}
        for key, value, time, weight in events
    ]
    return counted(given_, way, ["key"])


def kind(value: Any) -> int:
    """Nulls come before values, and NaN behind all of them."""
    return 0 if value is None else 2 if value != value else 1


def plain(events: Iterable[Event]) -> list[tuple[Any, Any, int, int]]:
    return [(event.key, event.value, event.time % 2, event.weight) for event in events]


def operator(count: int, ties: bool, grows: bool, descends: bool) -> Top:
    return Top("rows", count, (("_o0_kind", descends), ("_o0", descends)), ties, grows)


def run(epochs: Sequence[Epoch], way: Way, operator: Top) -> Stepper:
    with stepping(operator, schema(), COLUMNS, way) as stepper:
        for epoch in epochs:
            stepper.add_up(stepper.step(rows(plain(epoch.events), way), NO_TIME))
    return stepper


def expected(epochs: Sequence[Epoch], count: int, ties: bool, descends: bool) -> Answers:
    groups: dict[str | None, list[tuple[Any, ...]]] = {}
    for event in living([event for epoch in epochs for event in epoch.events]):
        groups.setdefault(event.key, []).append(plain([event])[0][:3])
    answers: Answers = Counter()
    for members in groups.values():
        values = [(kind(value), value or 0) for _, value, _ in members]
        ranked = sorted(members, key=_by_hash)
        ranked.sort(key=lambda row: (kind(row[1]), row[1] or 0), reverse=descends)
        for number, row in enumerate(ranked):
            own = (kind(row[1]), row[1] or 0)
            better = sum(value > own if descends else value < own for value in values)
            rank = better + 1 if ties else number + 1
            if rank <= count:
                answers[(*row, rank)] += 1
    return answers


def _by_hash(row: tuple[Any, ...]) -> int:
    """Rows that are equal in their order are told apart by the hash of the whole row."""
    key, value, time = row
    return hash_of(3, key, value, value, kind(value), time)


@given(histories(retracts=True), ways(), st.integers(1, 4), st.booleans(), st.booleans())
def test_the_first_rows_follow_what_is_added_and_taken_back(
    epochs: tuple[Epoch, ...], way: Way, count: int, ties: bool, descends: bool
) -> None:
    stepper = run(epochs, way, operator(count, ties, grows=False, descends=descends))
    assert stepper.answers == expected(epochs, count, ties, descends)


@given(histories(), ways(), st.integers(1, 4), st.booleans(), st.booleans())
def test_where_rows_are_only_added_the_first_ones_are_the_same_and_no_others_are_kept(
    epochs: tuple[Epoch, ...], way: Way, count: int, ties: bool, descends: bool
) -> None:
    stepper = run(epochs, way, operator(count, ties, grows=True, descends=descends))
    wanted = expected(epochs, count, ties, descends)
    assert stepper.answers == wanted
    assert stepper.counts["events"] == sum(len(epoch.events) for epoch in epochs)
    if way.growth == 1000:  # where all runs are merged, the state has each row once
        assert stepper.rows == len({row[:3] for row in wanted})


@given(histories(), ways(), st.integers(1, 4), st.booleans(), st.booleans())
def test_rows_that_are_not_among_the_first_of_some_make_no_difference(
    epochs: tuple[Epoch, ...], way: Way, count: int, ties: bool, descends: bool
) -> None:
    ranking = operator(count, ties, grows=True, descends=descends)
    events = 0
    with stepping(ranking, schema(), COLUMNS, way) as stepper:
        for epoch in epochs:
            changes = rows(plain(epoch.events), way)
            parts = [pa.RecordBatch.from_pylist(part, schema=schema()) for part in (changes[::2], changes[1::2])]
            condensed = [ranking.condense(part) for part in parts]
            left = [row for part, _ in condensed for row in part.to_pylist()]
            events += sum(left_out for _, left_out in condensed)
            stepper.add_up(stepper.step(left, NO_TIME))
    assert stepper.answers == expected(epochs, count, ties, descends)
    assert stepper.counts["events"] + events == sum(len(epoch.events) for epoch in epochs)


@given(histories(retracts=True), ways(), st.booleans())
def test_the_ranks_do_not_depend_on_where_the_epochs_are_cut(epochs: tuple[Epoch, ...], way: Way, ties: bool) -> None:
    ranking = operator(3, ties, grows=False, descends=True)
    assert run(epochs, way, ranking).answers == run(recut(epochs), Way(), ranking).answers


@given(st.lists(st.tuples(st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]), st.integers(0, 3)), max_size=8))
def test_nulls_are_least_and_nan_is_greatest_and_zeros_are_equal(values: list[tuple[float | None, int]]) -> None:
    with stepping(operator(2, True, False, False), schema(pa.float64()), ["value", RANK], Way()) as stepper:
        for value, time in values:
            stepper.add_up(stepper.step(rows([("k", value, time, 1)], Way()), NO_TIME))
    wanted: Answers = Counter()
    own = [(kind(value), 0 if kind(value) != 1 else value) for value, _ in values]
    for own_value, (value, _) in zip(own, values, strict=True):
        rank = sum(smaller < own_value for smaller in own) + 1
        if rank <= 2:
            wanted[frozen(value), rank] += 1
    assert stepper.answers == wanted


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["b", "a", None, "ä"]),
        (pa.binary(), [b"b", b"", None]),
        (pa.decimal128(38, 2), [Decimal("2.50"), Decimal("1.00"), None]),
        (pa.date32(), [2, 1, None]),
        (pa.timestamp("us", "UTC"), [2, 1, None]),
        (pa.bool_(), [True, False, None]),
    ],
)
@pytest.mark.parametrize("ties", [False, True])
def test_rows_are_ordered_by_columns_of_every_plain_type(type_: pa.DataType, values: list[Any], ties: bool) -> None:
    typed = pa.array(values, type_).to_pylist()
    with stepping(operator(2, ties, False, False), schema(type_), ["value", RANK], Way()) as stepper:
        for value in typed:
            stepper.add_up(stepper.step(rows([("k", value, 0, 1)], Way()), NO_TIME))
    least = min(value for value in typed if value is not None)
    assert stepper.answers == Counter({(None, 1): 1, (least, 2): 1})
