"""An arrangement of runs, against a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state import arrangement as arrangements
from penstock.engine.state.arrangement import Adding, Arrangement, Kind, Replacing, last_expiry, never_expires
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER, WHOLE
from penstock.engine.state.rows import integers
from penstock.engine.state.run import Run, sorted_run

Key = tuple[int, int]
KEYS = [(order, id_) for order in (0, 5, 2**64 - 1) for id_ in (1, 2**63, 2**64 - 1)]
SUMS = Adding({COUNT: "sum", "sum": "sum", "least": "min"})
PLAIN = pa.schema([("name", pa.list_(pa.string())), ("sum", pa.int64()), ("least", pa.int64())])
HIDDEN = [(COUNT, pa.int64()), (ORDER, pa.int64()), (ID, pa.int64())]

# In each epoch: for some keys what is added to their count and their sum.
Epochs = list[dict[Key, tuple[int, int]]]
epochs: st.SearchStrategy[Epochs] = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(-1, 1), st.integers(-3, 3)), min_size=1), max_size=7
)


def run_of(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> Run:
    return sorted_run(pa.RecordBatch.from_pylist(list(rows), schema=schema))


def row(key: Key, **values: Any) -> dict[str, Any]:
    order, id_ = (np.array(part, dtype=np.uint64).astype(np.int64).item() for part in key)
    return {"name": [str(key)], ORDER: order, ID: id_, **values}


def adding(epochs: Epochs) -> Arrangement:
    schema = pa.schema([*PLAIN, *HIDDEN])
    runs = [
        run_of([row(key, sum=sum_, least=sum_, **{COUNT: count}) for key, (count, sum_) in epoch.items()], schema)
        for epoch in epochs
    ]
    return Arrangement(SUMS, schema, tuple(runs))


def replacing(epochs: Epochs) -> Arrangement:
    """A count below zero takes a key away."""
    schema = pa.schema([*PLAIN, *HIDDEN, (GONE, pa.bool_())])
    runs = [
        run_of([row(key, sum=sum_, **{GONE: count < 0}) for key, (count, sum_) in epoch.items()], schema)
        for epoch in epochs
    ]
    return Arrangement(Replacing(), schema, tuple(runs))


def added_up(epochs: Epochs) -> dict[Key, tuple[int, int, int]]:
    """The count, the sum and the least value of each key that is there."""
    held: dict[Key, list[tuple[int, int]]] = {}
    for epoch in epochs:
        for key, part in epoch.items():
            held.setdefault(key, []).append(part)
    found = {
        key: (sum(count for count, _ in parts), sum(value for _, value in parts), min(value for _, value in parts))
        for key, parts in held.items()
    }
    return {key: values for key, values in found.items() if values[0]}


def newest(epochs: Epochs) -> dict[Key, int]:
    held: dict[Key, tuple[int, int]] = {}
    for epoch in epochs:
        held |= epoch
    return {key: sum_ for key, (count, sum_) in held.items() if count >= 0}


def key_columns(keys: Sequence[Key]) -> tuple[Any, Any]:
    return (
        np.array([order for order, _ in keys], dtype=np.uint64),
        np.array([id_ for _, id_ in keys], dtype=np.uint64),
    )


def keys_of(batch: pa.RecordBatch) -> list[Key]:
    run = Run(batch)
    return list(zip(run.order.tolist(), run.id.tolist(), strict=True))


@given(epochs, st.lists(st.sampled_from(KEYS), unique=True))
def test_looking_up_adds_up_what_all_runs_say(epochs: Epochs, wanted: list[Key]) -> None:
    rows, has_row = adding(epochs).look_up(*key_columns(wanted))
    held = added_up(epochs)
    assert has_row.tolist() == [key in held for key in wanted]
    assert keys_of(rows) == [key for key in wanted if key in held]
    found = zip(*(rows.column(name).to_pylist() for name in (COUNT, "sum", "least")), strict=True)
    assert list(found) == [held[key] for key in wanted if key in held]
    assert rows.column("name").to_pylist() == [[str(key)] for key in wanted if key in held]


@given(epochs, st.lists(st.sampled_from(KEYS), unique=True))
def test_looking_up_finds_what_the_newest_run_says(epochs: Epochs, wanted: list[Key]) -> None:
    rows, has_row = replacing(epochs).look_up(*key_columns(wanted))
    held = newest(epochs)
    assert has_row.tolist() == [key in held for key in wanted]
    assert keys_of(rows) == [key for key in wanted if key in held]
    assert rows.column("sum").to_pylist() == [held[key] for key in wanted if key in held]


@given(epochs, st.integers(1, 7), st.booleans())
def test_merging_runs_changes_nothing(epochs: Epochs, count: int, adds: bool) -> None:
    whole = adding(epochs) if adds else replacing(epochs)
    count = min(count, len(whole.runs))
    if not count:
        return
    older = whole.runs[: len(whole.runs) - count]
    merged = Arrangement(whole.kind, whole.schema, (*older, whole.merge_newest(count)))
    for value, expected in zip(whole.look_up(*key_columns(KEYS)), merged.look_up(*key_columns(KEYS)), strict=True):
        assert value.tolist() == expected.tolist() if isinstance(value, np.ndarray) else value.equals(expected)


@given(epochs, st.booleans())
def test_where_all_runs_are_merged_only_rows_that_are_there_are_left(epochs: Epochs, adds: bool) -> None:
    whole = adding(epochs) if adds else replacing(epochs)
    merged = whole.merge_newest(len(whole.runs))
    assert keys_of(merged.batch) == sorted(added_up(epochs) if adds else newest(epochs))


@given(epochs, st.lists(st.sampled_from([0, 5, 2**64 - 1]), unique=True), st.booleans())
def test_all_rows_of_an_order_are_found(epochs: Epochs, orders: list[int], adds: bool) -> None:
    whole = adding(epochs) if adds else replacing(epochs)
    found = whole.rows_of_orders(np.array(sorted(orders), dtype=np.uint64))
    held = added_up(epochs) if adds else newest(epochs)
    assert keys_of(found.batch) == sorted(key for key in held if key[0] in orders)


@given(epochs, st.integers(0, 6), st.integers(0, 6))
def test_rows_between_orders_are_found(epochs: Epochs, low: int, length: int) -> None:
    high = low + length
    found = adding(epochs).rows_between([(2**63, 2**64 - 1), (low, high)], lambda rows: integers(rows, COUNT) > -9)
    held = added_up(epochs)
    assert keys_of(found.batch) == sorted(key for key in held if low <= key[0] <= high or key[0] >= 2**63)


def test_a_whole_row_hides_what_older_runs_say() -> None:
    schema = pa.schema([*PLAIN, *HIDDEN, (WHOLE, pa.bool_())])
    key = KEYS[0]
    runs = [
        run_of([row(key, sum=sum_, least=sum_, **{COUNT: 1, WHOLE: whole})], schema)
        for sum_, whole in ((5, False), (7, True), (1, False))
    ]
    for merged in (tuple(runs), (runs[0], SUMS.merge(*runs[1:])), (SUMS.merge(*runs[:2]), runs[2])):
        rows, _ = Arrangement(SUMS, schema, merged).look_up(*key_columns([key]))
        assert rows.select([COUNT, "sum", "least", WHOLE]).to_pylist() == [
            {COUNT: 2, "sum": 8, "least": 1, WHOLE: True}
        ]


def test_a_part_that_counts_for_nothing_still_changes_a_sum() -> None:
    key = KEYS[0]
    whole = adding([{key: (1, 10)}, {key: (-1, -10)}, {key: (1, 12)}])
    later = Run(whole.merge_newest(2).batch)
    rows, _ = Arrangement(SUMS, whole.schema, (whole.runs[0], later)).look_up(*key_columns([key]))
    assert rows.select([COUNT, "sum"]).to_pylist() == [{COUNT: 1, "sum": 12}]


def sized(*rows: int) -> Arrangement:
    schema = pa.schema([(COUNT, pa.int64()), (ORDER, pa.int64()), (ID, pa.int64())])
    runs = []
    for number, count in enumerate(rows):
        keys = [{COUNT: 1, ORDER: at, ID: number} for at in range(count)]
        runs.append(run_of(keys, schema))
    return Arrangement(Adding({COUNT: "sum"}), schema, tuple(runs))


@pytest.mark.parametrize(
    ("rows", "merges"), [([], 0), ([5], 1), ([100, 5], 1), ([15, 5], 2), ([100, 15, 5], 2), ([60, 15, 5], 3)]
)
def test_runs_are_merged_where_an_older_one_is_not_much_larger(rows: list[int], merges: int) -> None:
    assert sized(*rows).merge_count() == merges


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_there_are_few_runs_and_none_is_lost(rows: list[int]) -> None:
    kept: tuple[Run, ...] = ()
    for number, count in enumerate(rows):
        whole = Arrangement(sized().kind, sized().schema, (*kept, _numbered(count, number)))
        stay, run = whole.merge_small_runs()
        kept = (*kept[:stay], run)
    assert sum(run.rows for run in kept) == sum(rows)
    assert len(kept) <= 1 + np.log2(sum(rows))
    assert all(older.rows > arrangements.GROWTH * newer.rows for older, newer in pairwise(kept))


def _numbered(count: int, number: int) -> Run:
    rows = [{COUNT: 1, ORDER: at, ID: number} for at in range(count)]
    return run_of(rows, sized().schema)


def test_runs_are_not_merged_beyond_what_a_batch_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangements, "MOST_BYTES", 20 * 24)
    assert sized(15, 5).merge_count() == 2
    assert sized(16, 5).merge_count() == 1


def test_rows_that_cannot_be_reached_are_left_out_where_runs_are_merged() -> None:
    seen: list[bool] = []

    def expires(rows: pa.RecordBatch, whole: bool) -> Any:
        seen.append(whole)
        return integers(rows, ORDER)

    _, run = replace(sized(10, 10), expiry=expires).merge_small_runs(6)
    assert (run.rows, seen) == (2 * 3, [True])
    stay, run = replace(sized(90, 10, 10), expiry=expires).merge_small_runs(6)
    assert (stay, run.rows, seen[-1]) == (1, 2 * 3, False)
    assert last_expiry(expires, run) == 9
    assert last_expiry(never_expires, run) is None


def test_an_expired_row_is_not_found_again_where_the_run_that_deleted_it_has_been_dropped() -> None:
    deleted, other = KEYS[0], KEYS[1]
    for state in (
        replacing([{deleted: (1, 3), other: (1, 9)}, {deleted: (-1, 3)}]),
        adding([{deleted: (1, 3), other: (1, 9)}, {deleted: (-1, 3)}]),
    ):
        later = replace(
            state, runs=state.runs[:1], expiry=lambda rows, whole: np.abs(integers(rows, "sum")), watermark=5
        )
        rows, has_row = later.look_up(*key_columns([deleted, other]))
        assert (keys_of(rows), has_row.tolist()) == ([other], [False, True])
        assert keys_of(later.rows_of_orders(np.array([0], dtype=np.uint64)).batch) == [other]
        assert keys_of(later.rows_between([(0, 9)], lambda rows: np.ones(rows.num_rows, np.bool_)).batch) == [other]


def test_an_arrangement_without_runs_has_nothing() -> None:
    kinds: list[Kind] = [SUMS, Replacing()]
    for kind in kinds:
        empty = Arrangement(kind, pa.schema([*PLAIN, *HIDDEN, (GONE, pa.bool_())]))
        rows, has_row = empty.look_up(*key_columns(KEYS))
        assert (rows.num_rows, has_row.any()) == (0, False)
        assert empty.rows_of_orders(np.array([0], dtype=np.uint64)).rows == 0
        assert empty.rows == 0
