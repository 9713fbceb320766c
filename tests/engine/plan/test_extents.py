"""Where ranges are cut: bytes between offsets, and shares of a limit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock import Log, TopicSettings
from penstock.contracts import Extent
from penstock.engine.plan.extents import byte_extent, cuts, offset_after, shares, size_between


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 1000), min_size=1), st.integers(1, 5000))
def test_a_limit_is_dealt_out_fully_and_evenly(available: dict[int, int], limit: int) -> None:
    dealt = shares(available, limit)
    assert sum(dealt.values()) == min(limit, sum(available.values()))
    assert all(0 <= dealt[one] <= available[one] for one in available)
    short = [dealt[one] for one in available if dealt[one] < available[one]]
    assert not short or max(dealt.values()) - min(short) <= 1


def test_with_less_than_one_row_each_every_partition_has_its_turn() -> None:
    behind = {0: 3, 1: 3, 2: 3}
    for _ in range(9):
        for one, rows in shares(behind, 1).items():
            behind[one] -= rows
    assert behind == {0: 0, 1: 0, 2: 0}


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), min_size=1, max_size=30),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(1, 50_000),
)
def test_cuts_make_up_the_whole_range(steps: list[tuple[int, int]], first: int, second: int, size: int) -> None:
    offsets = np.cumsum([0, *(rows for rows, _ in steps)], dtype=np.int64)
    extent = Extent(offsets, np.cumsum([0, *(count for _, count in steps)], dtype=np.int64))
    end = int(offsets[-1])
    start, until = sorted((min(first, end), min(second, end)))
    ranges = cuts(extent, start, until, size)
    assert (ranges[0][0], ranges[-1][1]) == (start, until)
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert len(ranges) == 1 or all(low < high for low, high in ranges)
    assert start <= offset_after(extent, start, size) or start == end


def test_bytes_are_measured_over_the_bounds_of_segments(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        settings = TopicSettings(durability="os", segment_bytes=1024 * 1024)
        topic = log.create_topic("numbers", "a bigint", settings=settings)
        for _ in range(30):
            topic.append(pa.record_batch({"a": pa.array(range(10_000))}))
        # 80 kB a frame, of which ten are asked for.
        extent = byte_extent(topic, 0, 100_000, 200_000)
        size = size_between(extent, 100_000, 200_000)
        assert 750_000 < size < 850_000
        assert offset_after(extent, 100_000, size) in range(199_998, 200_001)
