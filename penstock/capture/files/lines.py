"""The numbered lines of an input, and whether the next one is available without waiting."""

from __future__ import annotations

import io
import select
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

BLOCK_BYTES = 1 << 20
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


class Lines:
    """Iterates over the lines of a stream. Bytes that are not UTF-8 become surrogates, which the caller must check."""

    def __init__(self, stream: ByteStream, *, progress: Callable[[int], None] = lambda count: None) -> None:
        self.number = 0  # of the last line returned
        self.first_line = ""
        self._stream = stream
        self._progress = progress
        self._lines: deque[bytes] = deque()
        self._partial_line = b""
        self._ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            if self._ended:
                raise StopIteration
            self._read_block()
        self.number += 1
        text = self._lines.popleft().decode("utf-8", errors="surrogateescape")
        if self.number == 1:
            self.first_line = text = text.removeprefix(BYTE_ORDER_MARK)
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
        *lines, self._partial_line = (self._partial_line + block).split(b"\n")
        self._lines.extend(line + b"\n" for line in lines)
        if not block:
            self._ended = True
            if self._partial_line:
                self._lines.append(self._partial_line)
