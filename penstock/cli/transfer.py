"""Transferring one input to one topic: what `penstock produce` does once it knows which topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.cli.interrupt import defer_interrupt
from penstock.errors import RowError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.capture.files.earlier_records import EarlierRecords
    from penstock.capture.files.options import FileOptions
    from penstock.capture.files.parquet import ParquetSource
    from penstock.capture.files.records import Record
    from penstock.capture.files.source import FileSource
    from penstock.capture.files.writers import InputWriter, UnnamedWriter
    from penstock.cli.bad_lines import BadLines
    from penstock.contracts import Position, Rows, SourceTable, TopicRows
    from penstock.log import Log, Topic

GUESSED_HINT = "the schema was guessed from the beginning of the input; `penstock topic evolve` can widen it"


class OpenSource(Protocol):
    """Opens the input with options that the transfer has completed."""

    def __call__(self, table: SourceTable, options: FileOptions) -> FileSource | ParquetSource: ...


class Transfer:
    """Transfers one input to one topic, and counts what was acknowledged. It is a `contracts.Writer`.

    With `guessed`, a row that does not fit is reported with the hint that the schema was guessed.
    """

    def __init__(self, log: Log, topic: Topic, producer: str | None, *, guessed: bool = False) -> None:
        from penstock.capture.files.positions import record_count
        from penstock.capture.files.writers import UnnamedWriter, open_input_writer

        self.topic = topic
        self.producer = producer
        self.stored = 0
        self.place = "line"
        self._guessed = guessed
        self._written_line = 0
        self._source: FileSource | ParquetSource | None = None
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

    def run(self, open_source: OpenSource, options: FileOptions, bad: BadLines | None) -> None:
        """Read the input to its end, and store its rows. With `bad`, bad rows are left out."""
        from penstock.capture.pump import PumpOptions, pump
        from penstock.contracts import SourceTable

        def store_bad(record: Record) -> None:
            assert bad is not None
            if record.problem is not None:
                record.problem = self._explained(record.problem)
            bad.store(record, header=source.header)

        def fit(rows: Rows) -> pa.RecordBatch:
            return self.topic.fitted_rows(rows, deleted=[True] * len(rows) if options.deletes else None)

        table = SourceTable(self.topic.name, self.topic.schema, self.topic.settings.key)
        complete = replace(options, fit=fit, on_bad=store_bad if bad is not None else None, earlier=self._earlier)
        self._source = source = open_source(table, complete)
        self.place = source.place
        try:
            # One attempt: whoever runs the command can run it again if the log is unavailable.
            pump(source, self, options=PumpOptions(attempts=1))
        except RowError as error:
            problem = self._explained(error)
            raise RowError(problem.message, hint=self._how_to_continue(problem.hint)) from None

    def _explained(self, problem: RowError) -> RowError:
        """The problem, with a hint that the schema was guessed if it is about a column and not about the syntax."""
        if not self._guessed or "column" not in problem.message:
            return problem
        return RowError(problem.message, hint=f"{problem.hint}; {GUESSED_HINT}" if problem.hint else GUESSED_HINT)

    def _how_to_continue(self, hint: str | None) -> str:
        """The hint for a bad row that ended the transfer: what is stored, and how a rerun does not store it again."""
        if self.producer is not None:
            advice = "mend the row and run the same command again: what is stored is skipped"
        elif not self.stored:
            advice = "nothing is stored: mend the row and run the same command again"
        else:
            stored = "1 row before it is" if self.stored == 1 else f"{self.stored:,} rows before it are"
            advice = (
                f"{stored} stored, and a rerun of the whole input would store them again: continue with what follows "
                f"{self.place} {self.last_line}; with --producer NAME from the start, a rerun skips what is stored"
            )
        return f"{hint}; {advice}" if hint else advice

    @property
    def token(self) -> int:
        return self._writer.token

    @property
    def position(self) -> Position | None:
        return self._writer.position

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        """Store rows and count them. Ctrl-C waits for it, so that the printed counts are what was stored."""
        from penstock.capture.files.positions import line_number

        with defer_interrupt():
            stored = self._writer.write(rows, position)
            self.stored += sum(len(part.rows) for part in rows) if stored else 0
            self._written_line = line_number(position)
        return stored

    def close(self) -> None:
        self._writer.close()
