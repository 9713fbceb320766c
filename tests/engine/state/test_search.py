"""Finding rows in sorted runs, against looking through them one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.search import (
    NOWHERE,
    Hashes,
    argsort_by_key,
    expand_ranges,
    firsts,
    interleave,
    is_sorted,
    lower_bounds,
    positions,
    positions_of_orders,
    unique,
)

# Few orders, so that many rows share one; and the largest, which are the smallest as signed numbers.
hashes = st.sampled_from([0, 1, 2, 2**63 - 1, 2**63, 2**64 - 1])
keys = st.lists(st.tuples(hashes, hashes), max_size=30)


@given(st.lists(hashes))
def test_each_of_some_sorted_values_is_left_once(values: list[int]) -> None:
    assert unique(np.array(sorted(values), dtype=np.uint64)).tolist() == sorted(set(values))


def columns(keys: list[tuple[int, int]]) -> tuple[Hashes, Hashes]:
    return (
        np.array([order for order, _ in keys], dtype=np.uint64),
        np.array([id_ for _, id_ in keys], dtype=np.uint64),
    )


@given(keys, keys)
def test_keys_are_found_where_they_are_and_nowhere_else(
    run: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    run = sorted(set(run))
    found = positions(*columns(run), *columns(wanted)).tolist()
    assert found == [run.index(key) if key in run else NOWHERE for key in wanted]


@given(keys, keys)
def test_the_lower_bound_is_the_first_row_that_does_not_come_before(
    run: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    run = sorted(run)
    found = lower_bounds(*columns(run), *columns(wanted)).tolist()
    assert found == [sum(row < key for row in run) for key in wanted]


def test_keys_are_found_among_very_many_rows_with_one_order() -> None:
    rows = 200_000
    order, id_ = np.zeros(rows, dtype=np.uint64), np.arange(0, 2 * rows, 2, dtype=np.uint64)
    wanted = np.arange(0, 2 * rows, 3, dtype=np.uint64)
    found = positions(order, id_, np.zeros(len(wanted), dtype=np.uint64), wanted)
    assert (found == np.where(wanted % 2 == 0, wanted // 2, NOWHERE).astype(np.int64)).all()


@given(keys)
def test_rows_are_sorted_by_order_and_then_by_id(run: list[tuple[int, int]]) -> None:
    assert [run[place] for place in argsort_by_key(*columns(run)).tolist()] == sorted(run)
    assert is_sorted(*columns(run)) == (run == sorted(run))


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 2, 2**63 - 1]), st.integers(0, 2))
    ),
    st.permutations([0, 1, 2]),
)
def test_rows_are_sorted_by_any_number_of_columns_and_else_stay_in_turn(
    rows: list[tuple[int, int, int]], importance: list[int]
) -> None:
    types = (np.int32, np.int64, np.int64)
    chosen = [np.array([row[number] for row in rows], dtype=types[number]) for number in importance]
    found = argsort_by_key(*chosen).tolist()  # type: ignore[arg-type]  # a partition's number is a narrow one
    assert found == sorted(range(len(rows)), key=lambda place: [rows[place][number] for number in importance])


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_rows_are_put_in_between_where_they_belong(run: list[int], more: list[int]) -> None:
    run, more = sorted(run), sorted(more)
    at = np.searchsorted(run, more).astype(np.int64)
    assert interleave(np.array(run, dtype=np.int64), np.array(more, dtype=np.int64), at).tolist() == sorted(run + more)


@given(st.lists(hashes), st.lists(hashes, unique=True))
def test_all_rows_of_some_orders_are_found(run: list[int], wanted: list[int]) -> None:
    run, wanted = sorted(run), sorted(wanted)
    found = positions_of_orders(np.array(run, dtype=np.uint64), np.array(wanted, dtype=np.uint64)).tolist()
    assert found == [place for place, order in enumerate(run) if order in wanted]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 5))))
def test_ranges_are_written_out_one_after_the_other(spans: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = np.array([start + length for start, length in spans], dtype=np.int64)
    assert expand_ranges(starts, ends).tolist() == [n for start, length in spans for n in range(start, start + length)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))))
def test_the_first_of_equal_rows_is_marked(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows)
    first: npt.NDArray[np.int64] = np.array([row[0] for row in rows], dtype=np.int64)
    second: npt.NDArray[np.int64] = np.array([row[1] for row in rows], dtype=np.int64)
    assert firsts(first, second).tolist() == [n == 0 or rows[n] != rows[n - 1] for n in range(len(rows))]
