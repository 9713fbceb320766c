"""Where windows lie in the order of runs, and when they close."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.contract import HASH, SECOND_HASH, Watermarks
from penstock.engine.operators.windows import (
    END,
    NUMBERS,
    START,
    WindowOrder,
    closing_bounds,
    group_order,
    is_closing,
    late_windows,
)
from tests.engine.operators.stepping import NO_TIME

steps = st.sampled_from([1, 7, 1000, 3_600_000_000])
hashes = st.integers(-(2**63), 2**63 - 1)
moments = st.one_of(st.integers(-(2**50), 2**52), st.integers(-100, 100))


def rows(*windows: tuple[int, int, int]) -> pa.RecordBatch:
    """Rows with the start and the end of their window and the hash of their group."""
    arrays = {
        name: pa.array([window[n] for window in windows], pa.int64()) for n, name in enumerate((START, END, HASH))
    }
    return pa.RecordBatch.from_pydict({**arrays, SECOND_HASH: arrays[HASH]})


@given(steps, st.integers(1, 5), moments, hashes, moments, st.one_of(st.just(NO_TIME), moments))
def test_every_window_that_closes_lies_within_the_bounds(
    step: int, hops: int, number: int, hash_: int, after: int, before: int
) -> None:
    window = WindowOrder(step, hops * step, 0)
    start = number // step * step
    batch = rows((start, start + window.longest, hash_))
    times = Watermarks(min(before, after), max(before, after))
    order = int(group_order(window, batch)[0])
    inside = any(low <= order <= high for low, high in closing_bounds(window, times.before, times.after))
    assert inside or not is_closing(batch, times)[0]


def test_few_other_windows_lie_within_the_bounds() -> None:
    window = WindowOrder(10, 30, 0)
    (bounds,) = closing_bounds(window, 1000, 1010)
    batch = rows(*((start, start + 30, 2**62) for start in range(0, 2000, 10)))
    order = group_order(window, batch)
    inside = (order >= np.uint64(bounds[0])) & (order <= np.uint64(bounds[1]))
    assert batch.column(START).filter(pa.array(inside)).to_pylist() == [970, 980, 990, 1000, 1010]


def test_numbers_of_windows_begin_again_when_they_are_used_up() -> None:
    window = WindowOrder(10, 10, 0)
    far = 10 * NUMBERS
    near_order, far_order = group_order(window, rows((50, 60, 7), (50 + far, 60 + far, 7)))
    assert near_order == far_order
    assert len(closing_bounds(window, far - 20, far + 20)) == 2
    assert closing_bounds(window, NO_TIME, 0) == [(0, 2**64 - 1)]


@given(moments, moments, st.integers(0, 100))
def test_a_window_is_late_when_it_can_no_longer_be_corrected(end: int, watermark: int, keep: int) -> None:
    window = WindowOrder(10, 10, keep)
    assert late_windows(window, rows((end - 10, end, 0)), watermark)[0] == (end + keep <= watermark)


def test_without_windows_nothing_is_late() -> None:
    assert not late_windows(None, rows((0, 10, 0)), 2**60).any()
