"""Row images of the binary log: where each row begins, and where the values of each column are in it.

An image is a bitmap of nulls and then the values that are not null. Nothing says how long an image is, so finding
where each begins is the one thing that is done row by row; everything else is done column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.capture.mysql.cells import Bytes, Cells, Ints


@dataclass(frozen=True, slots=True)
class Storage:
    """How a column is stored: in `width` bytes, or behind its length, which has `prefix` bytes."""

    width: int = 0
    prefix: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """The columns of one table as its row images have them."""

    columns: Sequence[Storage]
    _steps: dict[bytes, tuple[tuple[tuple[int, int], ...], int]] = field(default_factory=dict)  # by bitmap of nulls

    @property
    def bitmap_bytes(self) -> int:
        return (len(self.columns) + 7) // 8

    def image_starts(self, data: bytes, start: int, end: int) -> list[int]:
        """Where each image begins in `data[start:end]`."""
        starts = []
        bitmap_bytes, steps = self.bitmap_bytes, self._steps
        while start < end:
            starts.append(start)
            nulls = data[start : start + bitmap_bytes]
            lengths, rest = steps.get(nulls) or self._remember_steps(nulls)
            start += bitmap_bytes
            for skip, prefix in lengths:
                start += skip
                if prefix == 1:
                    start += 1 + data[start]
                else:
                    start += prefix + int.from_bytes(data[start : start + prefix], "little")
            start += rest
        if start != end:
            raise ValueError(f"the images end at {start}, and not at {end}")
        return starts

    def _remember_steps(self, nulls: bytes) -> tuple[tuple[tuple[int, int], ...], int]:
        """How to step over an image: bytes to skip before each length, and bytes to skip at the end."""
        steps, skip = [], 0
        for number, column in enumerate(self.columns):
            if nulls[number // 8] >> (number % 8) & 1:
                continue
            skip += column.width
            if column.prefix:
                steps.append((skip, column.prefix))
                skip = 0
        self._steps[nulls] = (tuple(steps), skip)
        return self._steps[nulls]

    def cells(self, buffer: Bytes, starts: Ints) -> list[Cells]:
        """The values of each column in the images that begin at `starts`. `buffer` has 8 bytes more than the images."""
        places = starts + self.bitmap_bytes
        columns = []
        for number, column in enumerate(self.columns):
            valid = (buffer[starts + number // 8] >> np.uint8(number % 8)) & 1 == 0
            if column.prefix:
                at = Cells(buffer, places, np.full(len(starts), column.prefix), valid)
                lengths = at.little_endian(column.prefix).astype(np.int64)
                begins = places + column.prefix
            else:
                lengths, begins = np.full(len(starts), column.width), places
            columns.append(Cells(buffer, begins, lengths, valid))
            places = np.where(valid, begins + lengths, places)
        return columns
