"""Filling in values that were not sent, against going through the rows one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.copy.keys import KeyValue, key_values
from penstock.capture.copy.unchanged import fill_unchanged

NAMES = ("a", "b")
EARLIER = {1: ("a1", "b1"), 2: ("a2", None)}
rows = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.none() | st.sampled_from("xyz"),
        st.none() | st.sampled_from("xyz"),
        st.sets(st.sampled_from(NAMES)),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def lookup(keys: Sequence[KeyValue]) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
    known = list(EARLIER)
    batch = pa.record_batch({name: [EARLIER[key][at] for key in known] for at, name in enumerate(NAMES)})
    batch = batch.cast(pa.schema([(name, pa.string()) for name in NAMES]))
    return np.array([known.index(int(key)) if key in known else -1 for key in keys], np.int64), batch


@given(rows)
def test_each_cell_gets_the_last_value_of_its_key(
    given_rows: list[tuple[int, str | None, str | None, set[str], bool]],
) -> None:
    marks = [is_delete and not unchanged for *_, unchanged, is_delete in given_rows]
    sent = [
        {name: None if name in row[3] or mark else row[1 + at] for at, name in enumerate(NAMES)}
        for row, mark in zip(given_rows, marks, strict=True)
    ]
    batch = pa.RecordBatch.from_pylist(sent, schema=pa.schema([(name, pa.string()) for name in NAMES]))
    masks = {name: pa.array([name in row[3] for row in given_rows]) for name in NAMES}
    filled, missing = fill_unchanged(batch, pa.array(marks), masks, [row[0] for row in given_rows], lookup)

    state: dict[int, dict[str, str | None] | None] = {
        key: dict(zip(NAMES, values, strict=True)) for key, values in EARLIER.items()
    }
    for number, (key, *_, unchanged, _mark) in enumerate(given_rows):
        before = state.get(key)
        if marks[number]:
            state[key] = None
            continue
        assert bool(missing[number]) >= (bool(unchanged) and key not in state)
        if missing[number]:
            return  # from here on, whoever keeps the rows stops or leaves the key out
        expected = {name: before[name] if name in unchanged and before else sent[number][name] for name in NAMES}
        assert filled.slice(number, 1).to_pylist() == [expected]
        state[key] = expected


@given(st.lists(st.tuples(st.text("a:1", max_size=3), st.binary(max_size=2), st.integers(0, 12)), max_size=20))
def test_values_of_keys_are_equal_exactly_for_equal_keys(keys: list[tuple[str, bytes, int]]) -> None:
    columns = list(zip(*keys, strict=True)) if keys else [[], [], []]
    types = (pa.string(), pa.binary(), pa.int64())
    batch = pa.RecordBatch.from_arrays(
        [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)], names=["s", "b", "n"]
    )
    values = key_values(batch, ("s", "b", "n"))
    assert len(set(values)) == len(set(keys))
