"""Where the bad lines of an input go: to a file, or to stderr."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from penstock.cli.output import print_stderr
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from penstock.capture.files.records import Record


class BadLines:
    """Stores bad lines. Use it as a context manager: entering it creates the file, even if no line is bad."""

    def __init__(self, path: Path | None) -> None:
        self.count = 0
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> BadLines:
        if self._path is not None:
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                raise DeclarationError(f"{self._path}: it cannot be written ({error.strerror})") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def store(self, record: Record, *, header: str) -> None:
        """Write a record unchanged. The file begins with the header, so that it can be corrected and read again."""
        if self._file is not None:
            text = record.text if self.count else header + record.text
            self._file.write(text.encode(errors="surrogateescape"))
        elif record.problem is not None:
            hint = record.problem.hint
            print_stderr(f"bad: {record.problem.message}" + (f" - {hint}" if hint else ""))
        self.count += 1
