"""The rows of groups, where groups share the hash by which they are found."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import EVENTS, HASH, ROW_HASH, SECOND_HASH, hashes_of
from penstock.engine.operators.members import argsort_by_group, in_groups_of, member_groups, member_run, missing_from
from penstock.engine.state.columns import COUNT
from penstock.engine.state.rows import take_rows
from penstock.engine.state.run import Run

SCHEMA = pa.schema([(name, pa.int64()) for name in ("value", COUNT, EVENTS, HASH, SECOND_HASH, ROW_HASH)])
rows = st.lists(st.tuples(st.integers(-1, 1), st.integers(-1, 1), st.integers(0, 9)), unique=True, max_size=20)


def run(rows: list[tuple[int, int, int]], count: int = 1) -> Run:
    """Rows of a first hash, a second one, and a value."""
    batch = pa.RecordBatch.from_pylist(
        [
            {"value": value, COUNT: count, EVENTS: 1, HASH: first, SECOND_HASH: second, ROW_HASH: 100 * second + value}
            for first, second, value in rows
        ],
        schema=SCHEMA,
    )
    return member_run(batch, hashes_of(batch)[0])


def read(run: Run) -> list[tuple[int, int, int]]:
    names = ("_order", SECOND_HASH, "value")
    return list(zip(*(run.batch.column(name).to_pylist() for name in names), strict=True))


@given(rows, rows)
def test_rows_of_the_same_group_are_told_from_those_that_only_share_its_hash(
    own_rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    kept = run(own_rows)
    wanted = {(first, second) for first, second, _ in others}
    assert in_groups_of(kept, run(others)).tolist() == [row[:2] in wanted for row in read(kept)]


@given(rows, rows)
def test_rows_that_others_do_not_have_are_found(
    own_rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    kept = run(own_rows)
    assert missing_from(kept.batch, run(others).batch).tolist() == [row not in others for row in read(kept)]


@given(rows)
def test_rows_are_numbered_by_group(own_rows: list[tuple[int, int, int]]) -> None:
    sorted_ = Run(take_rows(run(own_rows).batch, argsort_by_group(run(own_rows).batch)))
    found = dict(zip([row[:2] for row in read(sorted_)], member_groups(sorted_.batch).tolist(), strict=True))
    assert sorted(found.values()) == list(range(len(found)))


def test_rows_that_change_nothing_are_left_out() -> None:
    assert run([(1, 2, 3)], count=0).rows == 0
