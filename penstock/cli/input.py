"""The input of `penstock produce`: a file or stdin, its format, how it is read, and how far that has come."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.capture.files.guess import GuessedSchema
    from penstock.capture.files.lines import ByteStream
    from penstock.capture.files.options import CsvOptions, FileOptions
    from penstock.capture.files.parquet import ParquetSource
    from penstock.capture.files.source import FileSource
    from penstock.cli.new_topic import NewTopic
    from penstock.contracts import SourceTable

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclass(slots=True)
class Input:
    """A file, or stdin without one. Opened when it is first needed, and closed at the end."""

    file: Path | None
    is_parquet: bool
    stream: ByteStream | None = None
    _read_bytes: int = 0

    def open_source(self, table: SourceTable, options: FileOptions) -> FileSource | ParquetSource:
        from penstock.capture.files.source import FileSource

        if self.is_parquet:
            from penstock.capture.files.parquet import ParquetSource

            assert self.file is not None
            return ParquetSource(self.file, table, options)
        return FileSource(self.open_stream(), table, options)

    def guess_schema(self, options: FileOptions, topic: str, new: NewTopic) -> GuessedSchema:
        """Guess the schema of a new topic from the beginning of the input, of which nothing is lost."""
        from penstock.capture.files.sample import guess_schema, parquet_schema
        from penstock.capture.files.streams import RewindableStream

        if self.is_parquet:
            assert self.file is not None
            return parquet_schema(self.file, options, key=new.key, time=new.time)
        self.stream = sampled = RewindableStream(self.open_stream())
        guessed = guess_schema(sampled, options, where=f"topic '{topic}'", key=new.key, time=new.time)
        sampled.rewind()
        return guessed

    def check(self) -> None:
        """Refuse a file that cannot be read, before anything is created."""
        if self.is_parquet and self.file is not None:
            from penstock.capture.files.parquet import open_parquet

            open_parquet(self.file).close()
        else:
            self.open_stream()

    def open_stream(self) -> ByteStream:
        from penstock.capture.files.streams import open_file

        if self.stream is None:
            # stdin is declared as BinaryIO, and is a BufferedReader.
            self.stream = sys.stdin.buffer if self.file is None else open_file(self.file)  # type: ignore[assignment]
        assert self.stream is not None
        return self.stream

    def close(self) -> None:
        if self.stream is not None and self.file is not None:
            self.stream.close()

    def size(self) -> int | None:
        """How many bytes there are to read; None if unknown, as of a pipe."""
        try:
            status = os.stat(self.file) if self.file is not None else os.fstat(sys.stdin.fileno())
        except (OSError, io.UnsupportedOperation):
            return None
        return status.st_size or None if stat.S_ISREG(status.st_mode) else None

    def counter(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Counts bytes as they are on disk: of a compressed file, not those that it holds."""
        from penstock.capture.files.streams import CompressedFile

        stream = None if self.is_parquet else self.open_stream()
        if not isinstance(stream, CompressedFile):
            return advance

        def count(_: int) -> None:
            position = stream.file.tell()
            advance(position - self._read_bytes)
            self._read_bytes = position

        return count


def find_input(file: Path | None, format_: str | None) -> tuple[Input, str]:
    """The input and its format: the one that was given, or that the file's name or beginning tells; else JSON."""
    from penstock.capture.files.formats import Format, file_format
    from penstock.capture.files.streams import PARQUET, file_begins_with

    found: str | None = format_
    if found is None and file is not None:
        found = file_format(file) or (Format.PARQUET if file_begins_with(file, PARQUET) else None)
    if found == Format.PARQUET and file is None:
        raise typer.BadParameter("Parquet is read from a file, not from stdin; name it with --file")
    return Input(file, found == Format.PARQUET), found or Format.JSON


def csv_options(
    format_: str, *, delimiter: str | None, header: bool, nulls: tuple[str, ...], columns: tuple[str, ...]
) -> CsvOptions | None:
    """How CSV is written, by the options of the command; None for other formats, which have no such options."""
    from penstock.capture.files.formats import Format
    from penstock.capture.files.options import CsvOptions

    if format_ not in (Format.CSV, Format.TSV):
        if delimiter is not None or not header or nulls:
            raise typer.BadParameter(f"--delimiter, --no-header and --null are for CSV; the input is {format_}")
        return None
    if not header and not columns:
        raise typer.BadParameter("without a header, --columns must name the columns")
    chosen = _DELIMITERS.get(delimiter, delimiter) if delimiter is not None else None
    chosen = chosen or ("\t" if format_ == Format.TSV else ",")
    if len(chosen) != 1 or chosen in '"\r\n':
        raise typer.BadParameter(f"the delimiter is one character, or 'tab'; found {delimiter!r}")
    return CsvOptions(chosen, header, nulls)
