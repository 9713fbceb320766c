"""`penstock produce`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.interrupt import defer_interrupt
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import count_text, print_json, print_line, print_stderr
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.capture.files.earlier_records import EarlierRecords
    from penstock.capture.files.lines import ByteStream
    from penstock.capture.files.records import Record, Row
    from penstock.capture.files.source import FileSource
    from penstock.capture.files.writers import InputWriter, UnnamedWriter
    from penstock.cli.bad_lines import BadLines
    from penstock.contracts import Position, TopicRows
    from penstock.log import Log


class Format(StrEnum):
    """How rows are written in the input."""

    JSON = "json"
    CSV = "csv"


InputFile = Annotated[Path | None, typer.Option("--file", metavar="PATH", help="Read this file instead of stdin.")]
InputFormat = Annotated[Format, typer.Option("--format", help="json: one object per line. csv: with a header line.")]
BatchRows = Annotated[int, typer.Option(metavar="N", min=1, help="Append at most this many rows at a time.")]
ProducerName = Annotated[
    str | None, typer.Option(metavar="NAME", help="A name for this input, so that a rerun stores nothing twice.")
]
Delete = Annotated[bool, typer.Option("--delete", help="The rows are keys, whose rows are to be deleted.")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Count bad lines and continue. Without it the first one ends the work.")
]
BadFile = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Write bad lines here, as they are; implies --skip-bad.")
]


@command
def produce(
    topic: TopicName,
    file: InputFile = None,
    format_: InputFormat = Format.JSON,
    batch_rows: BatchRows = 5000,
    producer: ProducerName = None,
    delete: Delete = False,
    skip_bad: SkipBad = False,
    bad_file: BadFile = None,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Append rows from stdin or a file to a topic.

    With --producer every row is stored once: the log remembers how much of the input it has seen under this name. After
    a crash, run the same command with the same input again; what was stored is passed over, the rest is stored. The
    input may have grown in the meantime. Use another name for another input.

    In CSV, values are read by the topic's schema; an empty field is null. In both formats binary is base64, times are
    ISO 8601, and arrays, maps and structs are JSON.
    """
    from penstock.cli.bad_lines import BadLines

    if file and bad_file and bad_file.exists() and bad_file.samefile(file):
        raise typer.BadParameter("--bad-file cannot be the input itself")
    with open_log(log_path) as log, _open_input(file) as stream:
        transfer = _Transfer(log, topic, producer)
        with BadLines(bad_file) as bad:
            complete = False
            try:
                skip = skip_bad or bad_file is not None
                transfer.run(stream, bad if skip else None, batch_rows, csv=format_ is Format.CSV, deletes=delete)
                complete = True
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            finally:
                _print_result(transfer, bad.count, complete=complete, as_json=as_json)


class _Transfer:
    """Transfers one input to one topic, and counts what was acknowledged. It is a `contracts.Writer`."""

    def __init__(self, log: Log, topic: str, producer: str | None) -> None:
        from penstock.capture.files.source import record_count
        from penstock.capture.files.writers import UnnamedWriter, open_input_writer

        self.topic = log.topic(topic)
        self.producer = producer
        self.stored = 0
        self._written_line = 0
        self._source: FileSource | None = None
        self._earlier: EarlierRecords | None = None
        self._writer: InputWriter | UnnamedWriter = UnnamedWriter(log)
        self.previous_record = 0  # the last record that was stored under this name before
        if producer is not None:
            self._writer, self._earlier = open_input_writer(log, producer, self.topic)
            self.previous_record = max(record_count(self._writer.position), self._earlier.newest)

    @property
    def skipped_rows(self) -> int:
        return self._source.skipped_rows if self._source else 0

    @property
    def last_line(self) -> int:
        return max(self._written_line, self._source.last_line if self._source else 0)

    def run(self, stream: ByteStream, bad: BadLines | None, batch_rows: int, *, csv: bool, deletes: bool) -> None:
        """Read the stream to its end, and store its rows."""
        from penstock.capture.files.source import FileOptions, FileSource
        from penstock.capture.pump import PumpOptions, pump
        from penstock.cli.progress_bar import progress_bar
        from penstock.contracts import SourceTable

        def store_bad(record: Record) -> None:
            assert bad is not None
            bad.store(record, header=source.header)

        def fit(rows: Sequence[Row]) -> pa.RecordBatch:
            return self.topic.fitted_rows(rows, deleted=[True] * len(rows) if deletes else None)

        table = SourceTable(self.topic.name, self.topic.schema, self.topic.settings.key)
        title, is_typed = f"Producing {self.topic.name}", stream is sys.stdin.buffer and sys.stdin.isatty()
        with progress_bar(title, _size(stream), unit="bytes", wanted=not is_typed) as advance:
            options = FileOptions(
                csv, batch_rows, deletes, fit, store_bad if bad is not None else None, advance, self._earlier
            )
            self._source = source = FileSource(stream, table, options)
            # One attempt: whoever runs the command can run it again if the log is unavailable.
            pump(source, self, options=PumpOptions(attempts=1))

    @property
    def token(self) -> int:
        return self._writer.token

    @property
    def position(self) -> Position | None:
        return self._writer.position

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        """Store rows and count them. Ctrl-C waits for it, so that the printed counts are what was stored."""
        from penstock.capture.files.source import line_number

        with defer_interrupt():
            stored = self._writer.write(rows, position)
            self.stored += sum(len(part.rows) for part in rows) if stored else 0
            self._written_line = line_number(position)
        return stored

    def close(self) -> None:
        self._writer.close()


def _open_input(file: Path | None) -> AbstractContextManager[ByteStream]:
    if file is None:
        return nullcontext(sys.stdin.buffer)  # type: ignore[arg-type]  # declared as BinaryIO, it is a BufferedReader
    try:
        return file.open("rb")
    except OSError as error:
        raise DeclarationError(f"{file}: it cannot be read ({error.strerror})") from error


def _size(stream: ByteStream) -> int | None:
    """How many bytes the input has; None if unknown."""
    is_file = isinstance(stream, io.BufferedReader) and stream is not sys.stdin.buffer
    return os.fstat(stream.fileno()).st_size or None if is_file else None


def _print_result(transfer: _Transfer, bad: int, *, complete: bool, as_json: bool) -> None:
    """Print what was acknowledged: as the result, or on stderr if the transfer was cut short."""
    skipped, before = transfer.skipped_rows, transfer.previous_record
    text = f"stored {count_text(transfer.stored, 'row')} in '{transfer.topic.name}'"
    if skipped:
        text += f"; {skipped} passed over: producer '{transfer.producer}' had come to record {before} before"
    if bad:
        text += f"; {count_text(bad, 'bad line')} left out"
    if not complete:
        print_stderr(text + (f"; the last was line {transfer.last_line}" if transfer.last_line else ""))
    elif not as_json:
        print_line(text)
        if skipped and not transfer.stored:
            print_stderr("hint: use another name for another input")
    if as_json:
        counts = {"stored": transfer.stored, "repeated": skipped, "bad": bad, "last_line": transfer.last_line}
        print_json({"topic": transfer.topic.name, **counts, "complete": complete})
