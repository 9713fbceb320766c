"""Files as streams of bytes, decompressed where they are compressed; and streams whose beginning can be read twice.

The position of an input counts its records. So a compressed file is resumed like any other: it is decompressed again
from the beginning, and the records that are stored are skipped.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from penstock.capture.files.lines import ByteStream
from penstock.errors import DeclarationError, RowError

# How files begin, and what opens them.
_COMPRESSED: dict[bytes, Callable[[BinaryIO], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"BZh91AY&SY": bz2.BZ2File,
}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
PARQUET = b"PAR1"
_MOST_MAGIC_BYTES = 10


def open_file(path: Path) -> ByteStream:
    """Open a file, and decompress it if it is compressed with gzip, bzip2 or xz."""
    try:
        file = path.open("rb")
        beginning = file.peek(_MOST_MAGIC_BYTES)[:_MOST_MAGIC_BYTES]
    except OSError as error:
        raise DeclarationError(f"{path}: it cannot be read ({error.strerror})") from error
    if beginning.startswith(_ZSTANDARD):
        file.close()
        raise DeclarationError(
            f"{path}: it is compressed with Zstandard, which is not supported",
            hint=f"decompress it into the command: zstd -dc {path} | penstock produce TOPIC",
        )
    for magic, decompress in _COMPRESSED.items():
        if beginning.startswith(magic):
            return CompressedFile(path, file, decompress(file))
    return file


def file_begins_with(path: Path, magic: bytes) -> bool:
    """Whether a file begins with these bytes. One that cannot be read does not."""
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


class CompressedFile:
    """A compressed file as a stream of what it holds. `file` is the file as it is on disk."""

    def __init__(self, path: Path, file: BinaryIO, content: io.BufferedIOBase) -> None:
        self.file = file
        self._path = path
        self._content = content

    def read1(self, size: int, /) -> bytes:
        """RowError if the file is cut short or damaged. What came before it was given."""
        try:
            return self._content.read1(size)
        except EOFError:
            raise RowError(f"{self._path}: the compressed file is incomplete; it ends too early") from None
        except (OSError, zlib.error, lzma.LZMAError) as error:
            raise RowError(f"{self._path}: the compressed file is damaged; {error}") from error

    def fileno(self) -> int:
        return self.file.fileno()

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, /) -> int:
        return self._content.seek(position)

    def close(self) -> None:
        self._content.close()
        self.file.close()


class RewindableStream:
    """A stream that remembers what was read from it, until `rewind`: then that is read again, and after it the rest."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._remembered: list[bytes] | None = []
        self._ahead: deque[bytes] = deque()

    def rewind(self) -> None:
        """Begin again. What is read from now on is not remembered."""
        self._ahead.extend(self._remembered or ())
        self._remembered = None

    def read1(self, size: int, /) -> bytes:
        if self._ahead:
            block = self._ahead.popleft()
            if len(block) > size:
                self._ahead.appendleft(block[size:])
            return block[:size]
        block = self._stream.read1(size)
        if self._remembered is not None and block:
            self._remembered.append(block)
        return block

    def fileno(self) -> int:
        """None while there is something to be read again, so that nobody waits for what is here."""
        if self._ahead:
            raise io.UnsupportedOperation("the next bytes are in memory")
        return self._stream.fileno()

    def seekable(self) -> bool:
        return False

    def seek(self, position: int, /) -> int:
        raise io.UnsupportedOperation("this stream can only be rewound")

    def close(self) -> None:
        self._stream.close()
