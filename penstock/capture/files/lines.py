"""The numbered lines of an input, and whether the next one is available without waiting.

Each byte is looked at once, however small the pieces are in which it arrives, and a line that is too long is discarded
while it is read: time is linear in the size of the input, and memory is bounded.
"""

from __future__ import annotations

import io
import select
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

BLOCK_BYTES = 1 << 20
# A line may be as long as the largest append that a topic takes by default.
MOST_LINE_BYTES = 64 * 1024 * 1024
# How much of a line that is too long is kept, to be shown.
SHOWN_BYTES = 1024
# How long an input must pause before the rows read from it are stored. Shorter than anyone notices.
LINGER_SECONDS = 0.05
BYTE_ORDER_MARK = "\ufeff"


class ByteStream(Protocol):
    """A stream of bytes. `read1` returns what is available, waits only if nothing is, and returns b"" at the end."""

    def read1(self, size: int, /) -> bytes: ...

    def fileno(self) -> int: ...

    def seekable(self) -> bool: ...

    def seek(self, position: int, /) -> int: ...

    def close(self) -> None: ...


class LongLineError(Exception):
    """A line is longer than MOST_LINE_BYTES. `text` is its beginning. The next line can be read."""

    def __init__(self, text: str) -> None:
        super().__init__("is longer than 64 MiB")
        self.text = text


class Lines:
    """Iterates over the lines of a stream. Bytes that are not UTF-8 become surrogates, which the caller must check."""

    def __init__(self, stream: ByteStream, *, progress: Callable[[int], None] = lambda count: None) -> None:
        self.number = 0  # of the last line returned
        self.first_line = ""
        self._stream = stream
        self._progress = progress
        self._lines: deque[bytes] = deque()
        self._partial_line: list[bytes] = []
        self._partial_bytes = 0
        self._ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """The next line with its end. LongLineError if it is too long; reading can continue after it."""
        while not self._lines:
            if self._ended:
                raise StopIteration
            self._read_block()
        self.number += 1
        line = self._lines.popleft()
        text = line.decode("utf-8", errors="surrogateescape")
        if self.number == 1:
            self.first_line = text = text.removeprefix(BYTE_ORDER_MARK)
        if type(line) is _LongLine:
            raise LongLineError(text)
        return text

    def is_idle(self, seconds: float = LINGER_SECONDS) -> bool:
        """Whether the next line does not arrive within this time. False at the end of the input."""
        if self._lines or self._ended:
            return False
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:
            return False  # bytes in memory are always available
        poll = select.poll()  # `select` refuses descriptors from 1,024 up
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(seconds * 1000)

    def _read_block(self) -> None:
        block = self._stream.read1(BLOCK_BYTES)
        self._progress(len(block))
        if not block:
            self._ended = True
            if self._partial_bytes:
                self._lines.append(self._end_line(b""))
            return
        first, *others = block.split(b"\n")
        if not others:
            self._extend_line(first)
            return
        *whole, rest = others
        self._lines.append(self._end_line(first + b"\n"))
        self._lines.extend(line + b"\n" for line in whole)
        self._extend_line(rest)

    def _extend_line(self, piece: bytes) -> None:
        """Add to the line whose end has not come. Once it is too long, only its length is counted."""
        if self._partial_bytes <= MOST_LINE_BYTES:
            self._partial_line.append(piece)
        self._partial_bytes += len(piece)

    def _end_line(self, piece: bytes) -> bytes:
        self._extend_line(piece)
        is_long, line = self._partial_bytes > MOST_LINE_BYTES, b"".join(self._partial_line)
        self._partial_line, self._partial_bytes = [], 0
        return _LongLine(line[:SHOWN_BYTES] + b"...\n") if is_long else line


class _LongLine(bytes):
    """The beginning of a line that is too long."""
