"""Windows as the state sees them: their order in runs, when they close, and when they expire.

The rows of windows are ordered by the number of the window first and by hash second, so that windows which close at the
same time are next to each other. The number takes the upper 24 bits of the order and wraps around: windows far apart
then share a number, and are distinguished by their ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import Watermarks, hashes_of
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.rows import Numbers, integers
from penstock.engine.state.run import Run
from penstock.engine.state.search import Hashes, Mask

START = "_start"
END = "_end"
NUMBER_BITS = 24
HASH_BITS = 64 - NUMBER_BITS
NUMBERS = 1 << NUMBER_BITS
_FULL_RANGE = [(0, 2**64 - 1)]


@dataclass(frozen=True, slots=True)
class WindowOrder:
    """`step`: starts are at least this far apart. `longest`: the longest that a window can be.

    `keep`: how long after its end a window can be corrected.
    """

    step: int
    longest: int
    keep: int


def group_order(window: WindowOrder | None, changes: pa.RecordBatch) -> Hashes:
    """The order of the rows of groups in runs: by window, if there are windows, then by the hash of the group."""
    first, _ = hashes_of(changes)
    if window is None:
        return first
    numbers = (integers(changes, START) // window.step) % NUMBERS
    return (numbers.astype(np.uint64) << np.uint64(HASH_BITS)) | (first >> np.uint64(NUMBER_BITS))


def late_windows(window: WindowOrder | None, rows: pa.RecordBatch, watermark: int) -> Mask:
    """Which rows are of windows that can no longer be corrected."""
    ends = window_expiry(window, rows)
    return np.zeros(rows.num_rows, dtype=np.bool_) if ends is None else ends <= watermark


def window_expiry(window: WindowOrder | None, rows: pa.RecordBatch) -> Numbers | None:
    """For each row the watermark from which on its window can no longer be corrected; None without windows."""
    return None if window is None else integers(rows, END) + window.keep


def closing_rows(window: WindowOrder, arrangement: Arrangement, watermarks: Watermarks) -> Run:
    """The rows of all windows that the watermark has passed in this epoch."""
    if watermarks.after <= watermarks.before:
        return arrangement.rows_between([], lambda rows: is_closing(rows, watermarks))
    return arrangement.rows_between(
        closing_bounds(window, watermarks.before, watermarks.after), lambda rows: is_closing(rows, watermarks)
    )


def is_closing(rows: pa.RecordBatch, watermarks: Watermarks) -> Mask:
    """Which rows are of windows that close in this epoch."""
    ends = integers(rows, END)
    return (ends > watermarks.before) & (ends <= watermarks.after)


def closing_bounds(window: WindowOrder, before: int, after: int) -> list[tuple[int, int]]:
    """Ranges of the order with every window that ends after `before` and not after `after`, and few others."""
    first = (before - window.longest) // window.step
    last = after // window.step
    if last - first + 1 >= NUMBERS:
        return _FULL_RANGE
    low, high = first % NUMBERS, last % NUMBERS
    if low <= high:
        return [_order_range(low, high)]
    return [_order_range(low, NUMBERS - 1), _order_range(0, high)]


def _order_range(low: int, high: int) -> tuple[int, int]:
    return low << HASH_BITS, ((high + 1) << HASH_BITS) - 1
