"""Windows as the state sees them: where they lie in the order of runs, when they close, and when they are forgotten.

The rows of windows are ordered by the window's number first and by hash second, so that windows which close together
lie together. The number takes the upper 24 bits of the order and starts again from 0 when they are used up: then
windows far apart share a number, and their ends tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import Times, hashes_of
from penstock.engine.state.arrangement import Arrangement
from penstock.engine.state.rows import Numbers, integers
from penstock.engine.state.run import Run
from penstock.engine.state.search import Hashes, Mask

START = "_start"
END = "_end"
NUMBER_BITS = 24
HASH_BITS = 64 - NUMBER_BITS
NUMBERS = 1 << NUMBER_BITS
_WHOLE = [(0, 2**64 - 1)]


@dataclass(frozen=True, slots=True)
class WindowOrder:
    """`step`: starts are at least this far apart. `longest`: how long a window can be. `keep`: after its end."""

    step: int
    longest: int
    keep: int


def group_order(window: WindowOrder | None, changes: pa.RecordBatch) -> Hashes:
    """Where the rows of a group lie in runs: by their window, if they have one, and by the hash of the group."""
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
    """From which watermark on the windows of rows can no longer be corrected; None without windows."""
    return None if window is None else integers(rows, END) + window.keep


def closing(window: WindowOrder, arrangement: Arrangement, times: Times) -> Run:
    """The rows of all windows that the watermark has passed in this epoch."""
    if times.after <= times.before:
        return arrangement.between([], lambda rows: closes(rows, times))
    return arrangement.between(closing_bounds(window, times.before, times.after), lambda rows: closes(rows, times))


def closes(rows: pa.RecordBatch, times: Times) -> Mask:
    """Which rows are of windows that close in this epoch."""
    ends = integers(rows, END)
    return (ends > times.before) & (ends <= times.after)


def closing_bounds(window: WindowOrder, before: int, after: int) -> list[tuple[int, int]]:
    """Ranges of the order that hold every window which ends after `before` and not after `after`, and few others."""
    first = (before - window.longest) // window.step
    last = after // window.step
    if last - first + 1 >= NUMBERS:
        return _WHOLE
    low, high = first % NUMBERS, last % NUMBERS
    if low <= high:
        return [_numbers(low, high)]
    return [_numbers(low, NUMBERS - 1), _numbers(0, high)]


def _numbers(low: int, high: int) -> tuple[int, int]:
    return low << HASH_BITS, ((high + 1) << HASH_BITS) - 1
