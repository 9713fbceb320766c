"""How many rows are copied at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.postgres.chunk_size import CHUNK_BYTES, ChunkSize


def test_the_first_chunk_follows_the_statistics_and_is_small_without_them() -> None:
    assert ChunkSize(50_000, 100).rows == 50_000
    assert ChunkSize(50_000, 1 << 20).rows == 16
    assert ChunkSize(50_000, 0).rows == 2_000
    assert ChunkSize(100, 0).rows == 100


def test_chunks_grow_up_to_what_was_asked_for_and_shrink_at_once_where_rows_are_wide() -> None:
    size = ChunkSize(5_000, 0)
    size.learn(2_000, 2_000 * 50)
    assert size.rows == 4_000
    size.learn(4_000, 4_000 * 50)
    assert size.rows == 5_000
    size.learn(5_000, 5_000 * 100_000)
    assert size.rows == CHUNK_BYTES // 100_000


@given(st.integers(1, 100_000), st.integers(0, 1 << 30), st.lists(st.integers(1, 1 << 32), max_size=20))
def test_a_chunk_always_has_rows_and_never_more_than_asked_for(asked: int, row_bytes: int, sizes: list[int]) -> None:
    size = ChunkSize(asked, row_bytes)
    for text_bytes in sizes:
        assert 1 <= size.rows <= asked
        size.learn(size.rows, text_bytes)
    assert 1 <= size.rows <= asked
