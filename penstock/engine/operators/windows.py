"""Windows as the state sees them: where they lie in the order of runs, when they close, and when they are forgotten.

The rows of windows are ordered by the window's number first and by hash second, so that windows which close together
lie together. The number takes the upper 24 bits of the order and starts again from 0 when they are used up: then
windows far apart share a number, and their ends tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.state.arrangement import Mask
from penstock.engine.state.run import Hashes

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


def window_order(window: WindowOrder, starts: np.ndarray, hashes: Hashes) -> Hashes:
    numbers = (starts // window.step) % NUMBERS
    return (numbers.astype(np.uint64) << np.uint64(HASH_BITS)) | (hashes >> np.uint64(NUMBER_BITS))


def window_ends(rows: pa.RecordBatch) -> np.ndarray:
    return rows.column(END).to_numpy(zero_copy_only=True)


def is_late(window: WindowOrder, ends: np.ndarray, watermark: int) -> Mask:
    """Whether windows can no longer be corrected."""
    return np.asarray(ends + window.keep <= watermark, dtype=np.bool_)


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
