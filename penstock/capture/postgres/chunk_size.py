"""How many rows to copy at a time: at most as many as asked for, and few enough for memory if they are wide. No I/O.

The first chunk follows the statistics of the server; each later one what the chunk before it had.
"""

from __future__ import annotations

CHUNK_BYTES = 16 << 20  # of the texts; as Arrow, and while they are converted, rows need a few times as much
_ROWS_WITHOUT_STATISTICS = 2_000


class ChunkSize:
    """The size of the next chunk of one table is `rows`. `row_bytes` is what a row takes; 0: nobody knows."""

    def __init__(self, chunk_rows: int, row_bytes: int) -> None:
        self._most = chunk_rows
        known = CHUNK_BYTES // row_bytes if row_bytes else _ROWS_WITHOUT_STATISTICS
        self.rows = max(1, min(chunk_rows, known))

    def learn(self, rows: int, size: int) -> None:
        """A chunk of so many rows had texts of this size. A chunk has at most twice the rows of the one before."""
        fitting = rows * CHUNK_BYTES // max(1, size)
        self.rows = max(1, min(self._most, rows * 2, fitting))
