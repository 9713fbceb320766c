"""Walking the headers of frames without their bodies: what was stored, by whom and when, for the price of a pointer.

Headers come as arrays, many at a time, and each is checked. Bodies are not: whoever reads rows checks those. Only the
pages that headers stand on are touched, so large frames cost no more than small ones.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from penstock.log.frame import ALIGNMENT, HEADER_BYTES, MAGIC, BadFrameError, parse_header
from penstock.log.reader import FrameReader
from penstock.log.tail import Tail

# Bounds the memory of one block of headers to 8 MiB.
MOST_HEADERS = 64 * 1024

Headers = npt.NDArray[np.void]
"""One record of `HEADER` for each frame, in the order of their offsets."""

# The bytes of a frame's header, as docs/reference/file-format.md lays them out.
HEADER = np.dtype(
    {
        "names": [
            "length",
            "flags",
            "base_offset",
            "last_offset",
            "rows",
            "producer",
            "transaction",
            "append_time",
            "min_time",
            "max_time",
        ],
        "formats": ["<u4", "<u4", "<i8", "<i8", "<u4", "<i8", "<i8", "<i8", "<i8", "<i8"],
        "offsets": [4, 12, 16, 24, 32, 48, 64, 72, 80, 88],
        "itemsize": HEADER_BYTES,
    }
)
# What it takes to get from one frame to the next: magic, length, first and last offset, checksum.
_LINK = struct.Struct("<4sI8xqq92xI")
assert _LINK.size == HEADER_BYTES


class HeaderReader(FrameReader):
    """Walks the frames of one partition from an offset on, as its parent does, and looks only at their headers."""

    def read_headers(self, tail: Tail, until: int) -> Headers:
        """The headers of the next frames that hold rows before `until`; none at the end that `tail` tells."""
        end = min(until, tail.end_offset)
        while self.next_offset < end:
            self._follow(tail)
            limit = self._limit(tail)
            if self._position < limit:
                found = self._headers(limit, end)
                if len(found):
                    return found
            elif not self._advance():
                break
        return np.empty(0, HEADER)

    def _headers(self, limit: int, until: int) -> Headers:
        assert self._file is not None
        if self._file.size() < limit:
            raise self._damage(f"the file has {self._file.size()} bytes instead of {limit}")
        data = self._file.view(self._position, limit - self._position)
        view = memoryview(data)
        start, places = self._position, list[int]()
        while self._position < limit and self.next_offset < until and len(places) < MOST_HEADERS:
            at = self._position - start
            try:
                length, base, last = self._link(view, at)
            except BadFrameError as bad:
                # What is good comes first; the next read begins at the bad frame.
                if places or self._skip_damage(limit):
                    break
                raise self._damage(str(bad)) from None
            if base >= until:
                self.next_offset = base  # the rows between were removed
                break
            if last >= self.next_offset:
                places.append(at)
                self.next_offset = last + 1
            self._position += length
            self._expected = last + 1
        return _gather_headers(data, places)

    def _link(self, view: memoryview, at: int) -> tuple[int, int, int]:
        """Length, first and last offset of the frame here; BadFrameError if it is not whole, undamaged and expected."""
        if at + HEADER_BYTES > len(view):
            parse_header(view, at)
        magic, length, base, last, crc = _LINK.unpack_from(view, at)
        if magic != MAGIC or crc32c(view[at : at + HEADER_BYTES - 4]) != crc:
            parse_header(view, at)
        if base < self._expected or (base > self._expected and not self._gaps):
            raise BadFrameError(f"the frame begins with offset {base} instead of {self._expected}")
        if at + length > len(view):
            raise BadFrameError(f"{len(view) - at} of {length} bytes")
        return length, base, last


def _gather_headers(data: pa.Buffer, places: list[int]) -> Headers:
    lines = np.frombuffer(memoryview(data), dtype=np.uint8)
    lines = lines[: len(lines) // ALIGNMENT * ALIGNMENT].reshape(-1, ALIGNMENT)
    first = np.array(places, dtype=np.int64) // ALIGNMENT
    both = first[:, None] + np.arange(HEADER_BYTES // ALIGNMENT)
    headers: Headers = lines[both].reshape(-1, HEADER_BYTES).view(HEADER)[:, 0]
    return headers
