"""Joins of rows that come and go on both sides, against nested loops over the rows that are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators import join as joins
from penstock.engine.operators.contract import HASH, MOMENT, ROW_HASH, SECOND_HASH, WEIGHT, Watermarks
from penstock.engine.operators.join import Bounds, Join, JoinType, Side
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, NO_RIGHT_KEY, RIGHT, SIDE, SideColumns
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT
from penstock.flow.lateness import timed_join_memory

SCHEMA = pa.schema(
    [
        (SIDE, pa.bool_()),
        *((name, pa.int64()) for name in ("first", "second", "third")),
        *((name, pa.int64()) for name in (COUNT, HASH, SECOND_HASH, ROW_HASH)),
    ]
)
# They share a column.
OURS = SideColumns({f"{LEFT}0": "first", f"{LEFT}1": "second"})
THEIRS = SideColumns({f"{RIGHT}0": "second", f"{RIGHT}1": "third"})
HOWS = get_args(JoinType)

Row = tuple[bool, int | None, int]  # whether it is of the right side, its key, its value
rows = st.tuples(st.booleans(), st.sampled_from([None, 1, 2, 3]), st.integers(0, 2))
epochs = st.lists(st.lists(st.tuples(rows, st.integers(0, 3)), max_size=8), min_size=1, max_size=5)


class Joined:
    """A join that is run epoch by epoch; `spread` first hashes are told apart, all others by the second."""

    def __init__(self, how: JoinType, spread: int) -> None:
        self._join = Join(Side("one", OURS, LEFT), Side("other", THEIRS, RIGHT), how)
        self._spread = spread
        self._left = Arrangement(self._join.left.kind, self._join.left.schema(SCHEMA))
        self._right = Arrangement(self._join.right.kind, self._join.right.schema(SCHEMA))
        self.answers: Counter[tuple[Any, ...]] = Counter()

    def step(self, changes: Sequence[tuple[Row, int]]) -> None:
        batch = pa.RecordBatch.from_pylist([self._change(*one) for one in changes], schema=SCHEMA)
        outcome = self._join.step(batch, self._left, self._right, Watermarks(0, 0))
        given: Counter[tuple[Any, ...]] = Counter()
        for output in outcome.output:
            for row in output.to_pylist():
                weight = row.pop(WEIGHT)
                assert weight in (1, -1)
                given[tuple(row.values())] += weight
                # Nothing is given and taken back in one epoch, else a view could not tell what is left.
                assert (given[tuple(row.values())] > 0) == (weight > 0)
        self.answers.update(given)
        assert min(self.answers.values(), default=0) >= 0
        self._left, self._right = self._left.with_run(outcome.left), self._right.with_run(outcome.right)

    def _change(self, row: Row, weight: int) -> dict[str, Any]:
        right, key, value = row
        second = (NO_RIGHT_KEY if right else NO_LEFT_KEY) if key is None else 1_000 + key
        first = hash(row) if key is None else key % self._spread
        one, other = (THEIRS if right else OURS).slots.values()
        return {
            SIDE: right,
            one: key,
            other: value,
            COUNT: weight,
            HASH: first,
            SECOND_HASH: second,
            ROW_HASH: hash((key, value)),
        }


def expected(how: JoinType, present: Counter[Row]) -> Counter[tuple[Any, ...]]:
    left = [row[1:] for row in present.elements() if not row[0]]
    right = [row[1:] for row in present.elements() if row[0]]
    answers: Counter[tuple[Any, ...]] = Counter()
    for left_row in left:
        partners = [right_row for right_row in right if left_row[0] is not None and left_row[0] == right_row[0]]
        if how in ("semi", "anti"):
            answers[left_row] += bool(partners) == (how == "semi")
            continue
        answers.update((*left_row, *right_row) for right_row in partners)
        if not partners and how in ("left", "full"):
            answers[(*left_row, None, None)] += 1
    for right_row in right if how in ("right", "full") else []:
        if not any(left_row[0] is not None and left_row[0] == right_row[0] for left_row in left):
            answers[(None, None, *right_row)] += 1
    return answers


@pytest.mark.parametrize("how", HOWS)
@given(epochs, st.sampled_from([1, 2, 10]))
def test_a_join_equals_that_of_the_rows_which_are_left(
    how: JoinType, epochs: list[list[tuple[Row, int]]], spread: int
) -> None:
    joined, present = Joined(how, spread), Counter[Row]()
    for epoch in epochs:
        changes = []
        for row, wanted in epoch:
            # As many of the row as are wanted: that may be fewer than there are.
            if wanted != present[row]:
                changes.append((row, wanted - present[row]))
                present[row] = wanted
        joined.step(changes)
        assert +joined.answers == +expected(how, present)


# -- near in time -----------------------------------------------------------------------------------------------------

Moment = tuple[bool, int | None, int, int]  # the side, the key, the time, and a value
moments = st.tuples(st.booleans(), st.sampled_from([None, 1, 2]), st.integers(0, 60), st.integers(0, 1))
histories = st.lists(
    st.tuples(st.lists(st.tuples(moments, st.booleans()), max_size=7), st.integers(0, 25)), min_size=1, max_size=6
)
all_bounds = st.builds(
    Bounds, before=st.sampled_from([0, 3, 10]), after=st.sampled_from([0, 5, 20]), keep=st.sampled_from([0, 4, 30])
)


class Nearby:
    """A join of rows near in time that is run epoch by epoch, as `Joined`."""

    def __init__(self, how: JoinType, bounds: Bounds) -> None:
        ours, theirs = (SideColumns({**columns.slots, MOMENT: MOMENT}) for columns in (OURS, THEIRS))
        left, right = timed_join_memory(how, bounds.before, bounds.after, bounds.keep)
        self._join = Join(Side("one", ours, LEFT, bounds, left), Side("other", theirs, RIGHT, bounds, right), how)
        self._bounds = bounds
        schema = SCHEMA.append(pa.field(MOMENT, pa.int64()))
        self._schema = schema
        self._states = [
            Arrangement(side.kind, side.schema(schema), (), side.expiry) for side in (self._join.left, self._join.right)
        ]
        self.answers: Counter[tuple[Any, ...]] = Counter()
        self.watermark = 0

    def step(self, changes: Sequence[tuple[Moment, int]], watermark: int) -> int:
        """One epoch; how many rows came too late."""
        batch = pa.RecordBatch.from_pylist([self._change(*one) for one in changes], schema=self._schema)
        times = Watermarks(self.watermark, max(self.watermark, watermark))
        left, right = self._states
        outcome = self._join.step(batch, left, right, times)
        for output in outcome.output:
            for row in output.to_pylist():
                weight = row.pop(WEIGHT)
                self.answers[tuple(row.values())] += weight
        assert min(self.answers.values(), default=0) >= 0
        self._states = [
            self._settled(state.with_run(run), len(state.runs), times)
            for state, run in zip(self._states, (outcome.left, outcome.right), strict=True)
        ]
        self.watermark = times.after
        return outcome.left_counts.get("late", 0) + outcome.right_counts.get("late", 0)

    def _settled(self, grown: Arrangement, before: int, times: Watermarks) -> Arrangement:
        """Runs are merged at once, and what cannot be reached goes."""
        grown = replace(grown, watermark=times.after)
        if len(grown.runs) == before:
            return grown
        run = grown.merge_newest(len(grown.runs), times.after)
        return replace(grown, runs=(run,) if run.rows else ())

    def _change(self, row: Moment, weight: int) -> dict[str, Any]:
        right, key, time, value = row
        one, other = (THEIRS if right else OURS).slots.values()
        return {
            SIDE: right,
            one: time,
            other: value,
            MOMENT: time,
            COUNT: weight,
            HASH: hash(row) if key is None else key,
            SECOND_HASH: (NO_RIGHT_KEY if right else NO_LEFT_KEY) if key is None else 1_000 + key,
            ROW_HASH: hash((key, time, value)),
        }


def nearby(how: JoinType, bounds: Bounds, present: Counter[Moment], watermark: int) -> Counter[tuple[Any, ...]]:
    """What must be known at a watermark of the rows that came in time."""

    def partners(row: Moment) -> list[Moment]:
        early, late = (bounds.before, bounds.after) if not row[0] else (bounds.after, bounds.before)
        return [
            partner
            for partner in present.elements()
            if partner[0] != row[0]
            and row[1] is not None
            and row[1] == partner[1]
            and -early <= partner[2] - row[2] <= late
        ]

    answers: Counter[tuple[Any, ...]] = Counter()
    for row in present.elements():
        found = partners(row)
        alone = not found and row[2] + (bounds.before if row[0] else bounds.after) < watermark
        if row[0]:
            answers[(None, None, *row[2:])] += alone and how in ("right", "full")
        elif how in ("semi", "anti"):
            answers[row[2:]] += bool(found) if how == "semi" else alone
        else:
            answers.update((*row[2:], *partner[2:]) for partner in found)
            answers[(*row[2:], None, None)] += alone and how in ("left", "full")
    return answers


@pytest.mark.parametrize("how", HOWS)
@given(histories, all_bounds)
def test_a_join_near_in_time_equals_that_of_the_rows_that_came_in_time(
    how: JoinType, history: list[tuple[list[tuple[Moment, bool]], int]], bounds: Bounds
) -> None:
    joined, present = Nearby(how, bounds), Counter[Moment]()
    for events, further in history:
        changes, late = [], 0
        for row, back in events:
            wait = bounds.before if row[0] else bounds.after
            if row[2] + wait + bounds.keep < joined.watermark:
                late += 1
                changes.append((row, 1))
            elif back and present[row]:
                present[row] -= 1
                changes.append((row, -1))
            else:
                present[row] += 1
                changes.append((row, 1))
        assert joined.step(changes, joined.watermark + further) == late
        assert +joined.answers == +nearby(how, bounds, present, joined.watermark)


@pytest.mark.parametrize(("how", "is_right"), [("right", False), ("full", True), ("left", True), ("anti", True)])
def test_a_row_that_lost_sight_of_its_first_partner_is_not_taken_for_one_without(how: JoinType, is_right: bool) -> None:
    """The row at 11 has a partner at 0, which nobody else can join any more; then another partner comes."""
    bounds = Bounds(0, 20, 0) if not is_right else Bounds(20, 0, 0)
    joined = Nearby(how, bounds)
    history = [([((is_right, 1, 0, 0), 1), ((not is_right, 1, 11, 0), 1)], 10), ([((is_right, 2, 15, 0), 1)], 21)]
    present = Counter[Moment]()
    for changes, watermark in [*history, ([((is_right, 1, 1, 0), 1)], 21)]:
        present.update(row for row, _ in changes)
        assert joined.step(changes, watermark) == 0
        assert +joined.answers == +nearby(how, bounds, present, watermark)


def test_a_key_with_many_rows_goes_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "PIECE_PAIRS", 7)
    joined = Joined("inner", 1)
    joined.step([((False, 1, value), 1) for value in range(10)])
    joined.step([((True, 1, value), 1) for value in range(10)])
    assert len(joined.answers) == 100


def test_rows_without_a_key_are_not_kept() -> None:
    joined = Joined("full", 1)
    joined.step([((False, None, 1), 1), ((True, None, 2), 1)])
    assert joined.answers == Counter({(None, 1, None, None): 1, (None, None, None, 2): 1})
    assert (joined._left.rows, joined._right.rows) == (0, 0)
    joined.step([((False, None, 1), -1)])
    assert +joined.answers == Counter({(None, None, None, 2): 1})
