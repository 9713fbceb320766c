"""The newest row of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import HASH, MOMENT, OFFSET, ROW_HASH, SECOND_HASH, WEIGHT
from penstock.engine.operators.latest import Latest
from penstock.engine.state.columns import GONE
from tests.engine.operators.stepping import NO_TIME, Epoch, Row, Way, hash_of, hashed, histories, stepping, ways

COLUMNS = ["key", "value", "place"]
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.int64()),
        ("place", pa.int64()),
        (GONE, pa.bool_()),
        *((name, pa.int64()) for name in (MOMENT, OFFSET, ROW_HASH, HASH, SECOND_HASH)),
    ]
)


def rows(epochs: Sequence[Epoch], way: Way, *, timed: bool) -> list[list[Row]]:
    """The rows of each epoch, in the order of the log; without times an event without a value deletes its key."""
    offset, found = 0, []
    for epoch in epochs:
        rows = []
        for event in epoch.events:
            row: Row = {"key": event.key, "value": event.value, "place": offset, OFFSET: offset}
            row |= {MOMENT: event.time if timed else 0, GONE: not timed and event.value is None}
            row[ROW_HASH] = hash_of(3, event.key, event.value, offset)
            rows.append(hashed(row, way, event.key))
            offset += 1
        found.append(rows)
    return found


@given(histories(), ways(), st.booleans())
def test_the_newest_row_by_time_and_then_by_place_counts(epochs: tuple[Epoch, ...], way: Way, shuffled: bool) -> None:
    newest: dict[str | None, Row] = {}
    with stepping(Latest("rows"), SCHEMA, COLUMNS, way) as stepper:
        for epoch in rows(epochs, way, timed=True):
            stepper.add_up(stepper.step(epoch[::-1] if shuffled else epoch, NO_TIME))
            for row in epoch:
                if row["key"] not in newest or row[MOMENT] >= newest[row["key"]][MOMENT]:
                    newest[row["key"]] = row
    assert stepper.answers == Counter(tuple(row[name] for name in COLUMNS) for row in newest.values())
    assert stepper.counts["events"] == sum(len(epoch.events) for epoch in epochs)


@given(histories(), ways(), st.booleans())
def test_a_delete_takes_the_row_of_its_key_away(epochs: tuple[Epoch, ...], way: Way, shuffled: bool) -> None:
    held: dict[str | None, Row] = {}
    with stepping(Latest("rows", order=(OFFSET,)), SCHEMA, COLUMNS, way) as stepper:
        for epoch in rows(epochs, way, timed=False):
            stepper.add_up(stepper.step(epoch[::-1] if shuffled else epoch, NO_TIME))
            for row in epoch:
                held[row["key"]] = row
    left = [row for row in held.values() if not row[GONE]]
    assert stepper.answers == Counter(tuple(row[name] for name in COLUMNS) for row in left)


@given(histories(), ways())
def test_rows_that_are_equal_in_time_and_place_are_told_apart_in_the_same_way_however_they_come(
    epochs: tuple[Epoch, ...], way: Way
) -> None:
    def answers(epochs: Sequence[Sequence[Row]]) -> Counter[tuple[Any, ...]]:
        with stepping(Latest("rows", order=(MOMENT, OFFSET, ROW_HASH)), SCHEMA, COLUMNS, way) as stepper:
            for epoch in epochs:
                stepper.add_up(stepper.step(epoch, NO_TIME))
            return stepper.answers

    placeless = [[{**row, OFFSET: 0} for row in epoch] for epoch in rows(epochs, way, timed=True)]
    everything = [row for epoch in placeless for row in epoch]
    assert answers(placeless) == answers([everything[::-1]])


@given(histories(), ways())
def test_whoever_replaces_rows_by_key_sees_the_same(epochs: tuple[Epoch, ...], way: Way) -> None:
    seen: dict[str | None, Row] = {}
    held: dict[str | None, Row] = {}
    with stepping(Latest("rows", upserts=True), SCHEMA, COLUMNS, way) as stepper:
        for epoch in rows(epochs, way, timed=False):
            for row in stepper.step(epoch, NO_TIME):
                if row[WEIGHT] > 0:
                    seen[row["key"]] = row
                else:
                    assert seen.pop(row["key"])["place"] == row["place"]
            held |= {row["key"]: row for row in epoch}
    assert {key: row["place"] for key, row in seen.items()} == {
        key: row["place"] for key, row in held.items() if not row[GONE]
    }
