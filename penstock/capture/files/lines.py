"""The lines of an input, with their numbers, and whether more of them is to be expected at once."""

from __future__ import annotations

import io
import select
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

BLOCK_BYTES = 1 << 20
# How long an input has to be silent before what has come from it is stored. Shorter than anyone notices.
LINGER_SECONDS = 0.05
BYTE_ORDER_MARK = "\ufeff"


class Blocks(Protocol):
    """A stream of bytes: `read1` returns what is there, and waits only when nothing is; empty at the end."""

    def read1(self, size: int, /) -> bytes: ...

    def fileno(self) -> int: ...

    def seekable(self) -> bool: ...

    def seek(self, position: int, /) -> int: ...

    def close(self) -> None: ...


class Lines:
    """Iterates over the lines of a stream. Bytes that are not UTF-8 become surrogates, for the caller to find."""

    def __init__(self, stream: Blocks, *, progress: Callable[[int], None] = lambda count: None) -> None:
        self.number = 0  # of the line returned last
        self.first = ""
        self._stream = stream
        self._progress = progress
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            if self._ended:
                raise StopIteration
            self._read()
        self.number += 1
        text = self._lines.popleft().decode("utf-8", errors="surrogateescape")
        if self.number == 1:
            self.first = text = text.removeprefix(BYTE_ORDER_MARK)
        return text

    def idle(self, seconds: float = LINGER_SECONDS) -> bool:
        """Whether the next line is not there and does not come for so long."""
        if self._lines or self._ended:
            return False
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:
            return False  # bytes in memory are always there
        poll = select.poll()  # `select` refuses descriptors from 1,024 on
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(seconds * 1000)

    def _read(self) -> None:
        block = self._stream.read1(BLOCK_BYTES)
        self._progress(len(block))
        *lines, self._rest = (self._rest + block).split(b"\n")
        self._lines.extend(line + b"\n" for line in lines)
        if not block:
            self._ended = True
            if self._rest:
                self._lines.append(self._rest)
