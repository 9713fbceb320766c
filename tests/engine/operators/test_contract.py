"""What holds for all operators: they carry columns of every type, and a repeated step does the same."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import (
    DEADLINE,
    EVENTS,
    HASH,
    MOMENT,
    OFFSET,
    ROW_HASH,
    SECOND_HASH,
    Operator,
    Watermarks,
    drop_late,
)
from penstock.engine.operators.count_distinct import CountDistinct
from penstock.engine.operators.distinct import Distinct
from penstock.engine.operators.group_rows import GroupRows
from penstock.engine.operators.latest import Latest
from penstock.engine.operators.replace import Replace
from penstock.engine.operators.row_windows import RowWindows
from penstock.engine.operators.session import LAST, Sessions
from penstock.engine.operators.top import Top
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.columns import COUNT
from penstock.engine.state.rows import integers
from tests.engine.operators.stepping import NO_TIME, Row, Way, frozen, hash_of, hashed, stepping

WINDOW = WindowOrder(10, 10, 50)
OPERATORS: dict[str, Operator] = {
    "accumulate": Accumulate("one", {"sum": "sum"}),
    "accumulate in windows": Accumulate("one", {"sum": "sum"}, WINDOW),
    "accumulate in closed windows": Accumulate("one", {"sum": "sum"}, WINDOW, final=True),
    "weigh": CountDistinct("one"),
    "regroup": GroupRows("one", WINDOW),
    "regroup closed windows": GroupRows("one", WINDOW, final=True),
    "replace": Replace("one", WINDOW),
    "newest": Latest("one"),
    "rank": Top("one", 2, (("sum", True),), ties=False, grows=False),
    "rank with ties": Top("one", 2, (("sum", True),), ties=True, grows=True),
    "first": Distinct("one", None, 0, (OFFSET,), grows=True),
    "first of bursts": Distinct("one", 3, 0, (OFFSET,), grows=False),
    "sessions": Sessions("one", {"sum": "sum"}, 10, 50),
    "ended sessions": Sessions("one", {"sum": "sum"}, 10, 50, final=True),
    "sliding": RowWindows("one", "sliding", 10, 50),
    "framed sessions": RowWindows("one", "session", 10, 50, final=True),
}
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, None]),
    "byte": (pa.int8(), [-1, None]),
    "float": (pa.float32(), [0.5, None]),
    "double": (pa.float64(), [float("nan"), None, 1.5]),
    "decimal": (pa.decimal128(38, 10), [Decimal("9" * 28), None]),
    "string": (pa.string(), ["", None, "ä"]),
    "binary": (pa.binary(), [b"", None, b"\0"]),
    "date": (pa.date32(), [0, None]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, None]),
    "local timestamp": (pa.timestamp("us"), [0, None]),
    "interval": (pa.duration("us"), [5, None]),
    "list": (pa.list_(pa.string()), [["a", None], None, []]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]), [{"a": 1, "b": [2]}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []]),
    "list of structs": (
        pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.string()))])),
        [[{"a": [("b", None)]}], None],
    ),
    "nothing": (pa.null(), [None]),
}
NUMBERS = ["sum", START, END, LAST, MOMENT, DEADLINE, OFFSET, COUNT, EVENTS, HASH, SECOND_HASH, ROW_HASH]


SCHEMA = pa.schema(
    [*((name, type_) for name, (type_, _) in TYPES.items()), *((name, pa.int64()) for name in ("key", *NUMBERS))]
)


def row(key: int, number: int) -> Row:
    """A row with a value of every type, which belong to its key."""
    values = {name: values[key % len(values)] for name, (_, values) in TYPES.items()}
    times = {START: 0, END: 10, LAST: 9, MOMENT: number, DEADLINE: 1_000}
    whole = {**values, "key": key, "sum": 1, OFFSET: number, COUNT: 1, EVENTS: 1, **times}
    return {**hashed(whole, Way(), key), ROW_HASH: hash_of(3, key, number)}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("growth", [0, 1, 1000])
def test_columns_of_every_type_and_nulls_are_carried_through(name: str, growth: int) -> None:
    with stepping(OPERATORS[name], SCHEMA, [], Way(growth=growth, stored=True)) as stepper:
        for epoch in range(3):
            stepper.step([row(key, epoch) for key in range(3 + epoch)], NO_TIME)
        stepper.step([row(key, 9) for key in range(6)], 30)
    given = [answer for answers in stepper.given for answer in answers]
    assert {answer["key"] for answer in given} == set(range(6))
    # What comes out of a type is what went in: days as dates, and so on.
    typed = {name: pa.array(values, type_).to_pylist() for name, (type_, values) in TYPES.items()}
    for answer in given:
        for column, values in typed.items():
            assert frozen(answer[column]) == frozen(values[answer["key"] % len(values)])


@pytest.mark.parametrize("name", OPERATORS)
def test_a_step_without_changes_gives_nothing(name: str) -> None:
    with stepping(OPERATORS[name], SCHEMA, [], Way()) as stepper:
        assert stepper.step([], NO_TIME) == []
        stepper.step([row(1, 1)], NO_TIME)
        assert stepper.step([], NO_TIME) == []
        assert stepper.rows == 1


@pytest.mark.parametrize("name", OPERATORS)
def test_a_repeated_step_gives_and_keeps_the_same_in_whatever_order_rows_come(name: str) -> None:
    operator = OPERATORS[name]
    rows = [row(number, number) for number in range(8)]
    found = set()
    for attempt in range(5):
        random.Random(attempt).shuffle(rows)
        changes = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        outcome = operator.step(changes, Arrangement(operator.kind, operator.schema(SCHEMA)), Watermarks(NO_TIME, 100))
        given = Counter(str(answer) for batch in outcome.output for answer in batch.to_pylist())
        found.add((str(outcome.run.batch.to_pylist()), str(sorted(given.items())), str(outcome.counts)))
    assert len(found) == 1


def test_late_rows_are_counted_and_left_out() -> None:
    changes = pa.RecordBatch.from_pydict({"at": pa.array([1, 2, 3]), EVENTS: pa.array([5, 6, 7])})
    kept, counts = drop_late(changes, integers(changes, "at") < 3)
    assert kept.column("at").to_pylist() == [3]
    assert counts == {"events": 18, "late": 11, "late_groups": 2}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_can_be_sent_to_tasks(name: str) -> None:
    assert pickle.loads(pickle.dumps(OPERATORS[name])) == OPERATORS[name]
