"""Answers that are replaced by key."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import REVISION, WEIGHT
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from tests.engine.operators.evaluating import ANSWER, ANSWERS, replacing
from tests.engine.operators.stepping import NO_TIME, Row, Way, hashed, stepping, ways

# In each epoch the answers of some keys, None where a key has no rows any more; and how the watermark moves.
Evaluations = list[tuple[dict[str, int | None], int]]
evaluations: st.SearchStrategy[Evaluations] = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 2))), st.integers(0, 30)),
    max_size=8,
)
ENDS = {"a": 10, "b": 20, "c": 30, "d": 1000}


def answers(epoch: dict[str, int | None], way: Way) -> list[Row]:
    return [
        hashed({"key": key, START: 0, END: ENDS[key], "values": [value], COUNT: int(value is not None)}, way, key)
        for key, value in epoch.items()
    ]


def reachable(epoch: dict[str, int | None], mark: int, keep: int) -> dict[str, int | None]:
    """No window is evaluated after it can no longer be corrected."""
    return {key: value for key, value in epoch.items() if ENDS[key] + keep > mark}


@given(evaluations, ways(), st.sampled_from([None, 0, 5, 100]))
def test_the_newest_answer_of_each_key_counts(epochs: Evaluations, way: Way, keep: int | None) -> None:
    held: dict[str, int] = {}
    revisions: Counter[str] = Counter()
    before, now = NO_TIME, 0
    with stepping(replacing(keep), ANSWERS, ANSWER, way) as stepper:
        for epoch, moved in epochs:
            now += moved
            given_ = epoch if keep is None else reachable(epoch, before, keep)
            stepper.add_up(stepper.step(answers(given_, way), now))
            for key, value in given_.items():
                if keep is not None and key in held and ENDS[key] <= before:
                    revisions[key] += 1
                if key not in held or value is None:
                    revisions[key] = 0
                held = {**held, key: value} if value is not None else {k: v for k, v in held.items() if k != key}
            before = now
    wanted = {(key, 0, ENDS[key], (value,), revisions[key]): 1 for key, value in held.items()}
    assert stepper.answers == Counter(wanted)


@given(evaluations, ways())
def test_whoever_replaces_answers_by_key_is_only_told_of_those_that_vanish(epochs: Evaluations, way: Way) -> None:
    held: dict[str, Row] = {}
    expected: dict[str, Any] = {}
    with stepping(replacing(None, upserts=True), ANSWERS, ANSWER, way) as stepper:
        for epoch, _ in epochs:
            for row in stepper.step(answers(epoch, way), NO_TIME):
                if row[WEIGHT] > 0:
                    held[row["key"]] = row
                else:
                    assert held.pop(row["key"]) == {**row, WEIGHT: 1}
            expected |= {key: [value] for key, value in epoch.items()}
    assert {key: row["values"] for key, row in held.items()} == {
        key: value for key, value in expected.items() if value != [None]
    }
    assert all(row[REVISION] == 0 for row in held.values())
