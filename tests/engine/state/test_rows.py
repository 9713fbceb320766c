"""Batches of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.rows import (
    concat_rows,
    filter_rows,
    gather_rows,
    mask,
    null_rows,
    take_rows,
    with_columns,
    without_columns,
)


def batch(*values: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64()), "y": pa.array([[v] for v in values])})


@given(st.lists(st.booleans()))
def test_wanted_rows_are_picked(wanted: list[bool]) -> None:
    rows = pa.RecordBatch.from_pydict({"x": pa.array(range(len(wanted)), pa.int64())})
    found = filter_rows(rows, np.array(wanted, dtype=np.bool_))
    assert found.column("x").to_pylist() == [n for n, is_wanted in enumerate(wanted) if is_wanted]


def test_picking_all_rows_copies_nothing() -> None:
    rows = batch(1, 2)
    assert filter_rows(rows, np.ones(2, dtype=np.bool_)) is rows


def test_rows_are_stacked_and_taken() -> None:
    whole = concat_rows([batch(1), batch(), batch(2, None)], batch(1).schema)
    assert take_rows(whole, np.array([2, 0, 0])).to_pylist() == [
        {"x": None, "y": [None]},
        {"x": 1, "y": [1]},
        {"x": 1, "y": [1]},
    ]
    assert concat_rows([], batch(1).schema).num_rows == 0


def test_rows_of_several_batches_are_gathered_in_any_order() -> None:
    parts = [batch(1), batch(), batch(2, None)]
    at = np.array([2, 0, 1])
    assert gather_rows(parts, at).equals(take_rows(concat_rows(parts, batch(1).schema), at))
    assert gather_rows([batch(), batch(7)], np.array([0])).equals(batch(7))
    assert gather_rows([batch(), batch()], np.array([], dtype=np.int64)).num_rows == 0


def test_columns_are_added_replaced_and_left_out() -> None:
    rows = with_columns(batch(1, 2), {"x": np.array([3, 4]), "z": np.array([True, False])})
    assert rows.select(["x", "z"]).to_pylist() == [{"x": 3, "z": True}, {"x": 4, "z": False}]
    assert without_columns(rows, "y", "missing").schema.names == ["x", "z"]


def test_null_is_false() -> None:
    assert mask(pa.array([True, None, False])).tolist() == [True, False, False]


def test_rows_of_nulls_have_every_type() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.int64()))])
    assert null_rows(schema, 2).to_pylist() == [{"a": None, "b": None}] * 2
