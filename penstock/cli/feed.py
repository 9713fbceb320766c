"""Appending numbered records to a topic; as a named producer, each of them once, however often the input is sent.

The sequence of a chunk is the number of its last record. So every partition remembers how many records of the input it
has seen, whatever the chunks were: a rerun may use other sizes, and the input may have grown. The one rule is that no
chunk reaches across a number at which some partition stopped (`stops`).
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO

from penstock.cli.lines import Blocks, Lines
from penstock.cli.output import tell
from penstock.cli.progress import progress
from penstock.cli.records import Record, Row, csv_records, json_records
from penstock.errors import DeclarationError, RowError
from penstock.log import Appended, Producer, Topic


class Feed:
    """Counts what was stored, and what was passed over because the producer had come further before."""

    def __init__(self, topic: Topic, producer: Producer | None, *, deletes: bool) -> None:
        self.stored = 0
        self.passed_over = 0
        self.last_line = 0  # of the input, acknowledged
        self.topic = topic
        self._producer = producer
        self._deletes = deletes
        self._chunks = 0
        marks = [] if producer is None else _records_seen(topic, producer)
        self.stops = frozenset(marks)
        self.come_to = max(marks, default=0)  # the last record that any partition has seen of this producer
        # Without a key a chunk is in one partition only, so the furthest of them tells how far all have come.
        self._seen = min(marks, default=0) if topic.settings.key else self.come_to

    def send(self, chunk: Sequence[Record]) -> None:
        """Store the good records of a chunk, or pass over them."""
        rows = [record.row for record in chunk if record.problem is None]
        if rows and chunk[-1].number <= self._seen:
            self.passed_over += len(rows)
        elif rows:
            for part in self._append(rows, chunk[-1].number):
                self.passed_over += part.rows if part.repeated else 0
                self.stored += 0 if part.repeated else part.rows
            self._chunks += 1
        self.last_line = max(self.last_line, *(record.line for record in chunk)) if chunk else self.last_line

    def find_problems(self, chunk: Sequence[Record]) -> bool:
        """Ask the topic about each record of a chunk that it refused; whether any was at fault."""
        for record in chunk:
            if record.problem is None:
                try:
                    self.topic.requests([record.row], deleted=[True] if self._deletes else None)
                except RowError as error:
                    record.problem = _with_line(error, record.line)
        return any(record.problem for record in chunk)

    def _append(self, rows: list[Row], end: int) -> list[Appended]:
        deleted = [True] * len(rows) if self._deletes else None
        if self._producer is None:
            return self.topic.append(rows, deleted=deleted)
        # A topic without a key takes its partitions in turn, by the sequence: the last digit, so to say, is the turn.
        partitions = self.topic.settings.partitions
        turn = 0 if self.topic.settings.key else self._chunks % partitions
        sequence = end * partitions + turn
        return self._producer.append(self.topic, rows, sequence=sequence, deleted=deleted)


class BadLines:
    """Where bad lines go: into a file or to stderr, or, without `skip`, nowhere, because the first one is an error."""

    def __init__(self, path: Path | None, *, skip: bool) -> None:
        self.count = 0
        self.header = ""  # the line that has to stand first in the file
        self._path = path
        self._skip = skip or path is not None
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

    def before_the_first(self, chunk: Sequence[Record]) -> Sequence[Record]:
        """The records of a chunk that may be stored: all of them, or those before the one that will be the error."""
        if self._skip:
            return chunk
        first = next((number for number, record in enumerate(chunk) if record.problem), len(chunk))
        return chunk[:first]

    def take(self, chunk: Sequence[Record]) -> None:
        """Put the bad records of a chunk where they belong."""
        for record in chunk:
            if record.problem is None:
                continue
            if not self._skip:
                raise record.problem
            if self._file is None:
                hint = record.problem.hint
                tell(f"bad: {record.problem.message}" + (f" - {hint}" if hint else ""))
            else:
                text = record.text if self.count else self.header + record.text
                self._file.write(text.encode(errors="surrogateescape"))
            self.count += 1


def transfer(stream: Blocks, feed: Feed, bad: BadLines, *, batch_rows: int, csv: bool) -> None:
    """Send everything that is in the stream, chunk after chunk, until it ends."""
    with progress(f"Producing {feed.topic.name}", _size(stream), unit="bytes", wanted=not _is_typed(stream)) as advance:
        lines = Lines(stream, progress=advance)
        read = csv_records if csv else json_records
        records = read(lines, feed.topic.schema, where=f"topic '{feed.topic.name}'")
        for chunk in chunks(records, size=batch_rows, stops=feed.stops, idle=lines.idle):
            bad.header = lines.first if csv else ""
            with uninterrupted():
                store(chunk, feed, bad)


def store(chunk: Sequence[Record], feed: Feed, bad: BadLines) -> None:
    """Store one chunk, and put its bad records aside."""
    try:
        feed.send(bad.before_the_first(chunk))
    except RowError:
        # Nothing of the chunk was stored. Find out which records are at fault, and send the others again.
        if feed.find_problems(chunk):
            feed.send(bad.before_the_first(chunk))
        elif len(chunk) > 1:
            # Each is good, so it is too much at once.
            half = len(chunk) // 2
            store(chunk[:half], feed, bad)
            store(chunk[half:], feed, bad)
            return
        else:
            raise
    bad.take(chunk)


def chunks(
    records: Iterator[Record], *, size: int, stops: frozenset[int], idle: Callable[[], bool]
) -> Iterator[list[Record]]:
    """Records in chunks of at most `size`, cut at `stops`, and where the input pauses so that nobody waits for more."""
    chunk: list[Record] = []
    while True:
        if chunk and (len(chunk) >= size or chunk[-1].number in stops or idle()):
            yield chunk
            chunk = []
        record = next(records, None)
        if record is None:
            break
        chunk.append(record)
    if chunk:
        yield chunk


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the block finish before Ctrl-C ends the program, so that it is known what was stored.

    Pressed twice, Ctrl-C ends it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _size(stream: Blocks) -> int | None:
    """How many bytes will come, where that is known."""
    is_file = isinstance(stream, io.BufferedReader) and stream is not sys.stdin.buffer
    return os.fstat(stream.fileno()).st_size or None if is_file else None


def _is_typed(stream: Blocks) -> bool:
    return stream is sys.stdin.buffer and sys.stdin.isatty()


def _records_seen(topic: Topic, producer: Producer) -> list[int]:
    """For every partition the number of the last record it has seen of this producer's input."""
    partitions = topic.settings.partitions
    marks = [topic.writer(number).mark_of(producer.id) for number in range(partitions)]
    return [mark.sequence // partitions if mark else 0 for mark in marks]


def _with_line(error: RowError, line: int) -> RowError:
    """The topic counts the rows it was given, of which there was one; users count lines."""
    message, found = re.subn(r"\brow 0\b", f"line {line}", error.message, count=1)
    return RowError(message if found else f"line {line}: {message}", hint=error.hint)
