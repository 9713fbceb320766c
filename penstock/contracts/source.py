"""The contract of sources: where facts come from outside, and what only databases can do beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from penstock.contracts.log import DeleteMarks, Position, Rows

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_TIME = "committed_at"
"""The column that captured tables have in addition: when the transaction that wrote a row was committed.

For rows that were copied when the capture began nobody knows it: they have 1970-01-01, so they hold since ever.
"""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a source: its name, its key, and its columns where they are known.

    To whoever opens the source it says what to capture: `columns` narrows it (None: all), and those in `as_text` are
    captured as the text that the source shows, whatever their type. With `inserts_only`, only inserted rows are given:
    the table is a list of events, such as an outbox. `tables()` gives the same, with schema and key as they are there.
    """

    name: str
    schema: pa.Schema | None = None
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    as_text: frozenset[str] = frozenset()
    inserts_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """Rows that a source has read from one of its tables, and the position after them.

    `deleted` marks rows that delete their key. An item without rows is a heartbeat: there is nothing more for now.
    An item without a position is no place to stop: its rows are stored with those of the next item that has one.

    Rows in Arrow have a schema of their own, which may have more columns than earlier ones: the table was changed.
    `unchanged` marks, by column, values that the source did not send because they are the same as before: whoever
    keeps the rows fills them in. Only databases give it.
    """

    table: str
    rows: Rows = ()
    deleted: DeleteMarks | None = None
    position: Position | None = None
    unchanged: Mapping[str, pa.BooleanArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableEvent:
    """What happened to a table as a whole, at this place among its rows.

    - `truncated`: all of its rows were deleted at once.
    - `copy begins`: from here on its rows are copied, beside the changes that are made meanwhile.
    - `copy ends`: each of its rows has been given since `copy begins`. One that was not given since no longer exists.

    The position means the same as that of `Captured`. `committed_at`: when its transaction was committed, if known.
    """

    table: str
    what: Literal["truncated", "copy begins", "copy ends"]
    position: Position | None = None
    committed_at: datetime | None = None


class Source(Protocol):
    """Where facts come from outside: a database, a queue, files. It can be read again from any position that it gave.

    The pump calls it, from one thread: `tables`, then `read`, and again `read` from the stored position after an
    UnavailableError; `close` last. A source does not retry, batch, count or wait for the log: the pump does.
    """

    def tables(self) -> Sequence[SourceTable]:
        """What there is to capture. Every item of `read` is of one of these tables."""

    def read(self, after: Position | None) -> Iterator[Captured]:
        """What came after a position, in order. None: everything, from the beginning; what is still to come included.

        Asking for the next item means that the last one with a position is durable, unless the source `Confirms`. An
        item that has rows has another position than the item before it. Reading again from a position gives the same
        rows in the same order, however they are divided into items.

        A source that waits for more gives a heartbeat before it waits, and then about once a second: only then does the
        pump write what it has gathered, and look whether it should stop. A heartbeat may have a new position, or that
        of the item before. The end of the iterator is the end of the source.

        UnavailableError: the source cannot be reached now; all other errors end the capture.
        """

    def close(self) -> None:
        """Release what is open, also in the middle of `read`. Calling it again does nothing."""


@runtime_checkable
class Confirms(Protocol):
    """The power of a source that is told what is durable, rather than taking it from being asked for more.

    So items of it can be written together: asking for the next one says nothing about the last.
    """

    def confirm(self, position: Position) -> None:
        """All items up to this position are durable: the server need not keep them. Called between two items.

        UnavailableError counts as one of `read`. What is not confirmed because of a crash is given again.
        """


# -- databases --------------------------------------------------------------------------------------------------------


class Database(Confirms, Protocol):
    """A source that is a database: it first copies its tables, then follows their changes, in the order of commits.

    `penstock.databases.open_database` opens it, which connects to nothing. `tables` asks the database: the schema has
    the captured columns and `COMMIT_TIME`, and only columns of the key are not null. Without a usable key, or where a
    setting of the server is wrong: DeclarationError, with the statement that corrects it as the hint.

    Items of `read` are Arrow batches with the columns of the schema. A row that deletes its key has nulls elsewhere,
    except in `COMMIT_TIME`. An update that changes the key is a delete and a row. All changes of a transaction have one
    position, at its end; several transactions may share an item. While the server is reachable, a heartbeat comes as
    soon as there is nothing more at the moment.

    `read(None)` begins with copying the tables; so does a table that the position does not know. A copy goes on
    beside the changes, in chunks, and continues in the middle after a crash. When everything is applied up to a
    position behind the end of a copy, the copied table equals the source as of that position. A row that is
    `unchanged` in parts and not copied yet is left out by whoever keeps the rows, so a later chunk must contain it.

    ChangesLostError: the server no longer has what came after the position. Nothing is given then; the tables must be
    copied again (`copy_again`), and the hint says so. DeclarationError: the tables have changed in a way that cannot be
    followed (a column was dropped or renamed); the message says at which statement, the hint what to do.

    No password is in any message, position or repr.
    """

    def tables(self) -> Sequence[SourceTable]: ...

    def read(self, after: Position | None) -> Iterator[Captured | TableEvent]: ...

    def close(self) -> None: ...

    def copy_again(self, position: Position | None, tables: Sequence[str]) -> Position | None:
        """The position from which `read` copies these tables again. With all tables, it also begins the stream anew.

        That is how a capture continues after a ChangesLostError. Needs no connection.
        """

    def copies(self, position: Position | None) -> Sequence[TableCopy]:
        """How far the copy of each table has come. Needs no connection."""

    def end(self) -> Position:
        """The place at which the log of the database ends now: everything committed so far is before it."""

    def has_reached(self, position: Position | None, end: Position) -> bool:
        """Whether all tables are copied and everything before an `end` has been given. Needs no connection.

        On an idle server, `read` reaches every end within a few seconds.
        """

    def health(self, position: Position | None) -> SourceHealth:
        """How the server sees this capture. Asked from any process, also while another one captures."""

    def remove(self) -> None:
        """Remove what capturing has left in the database: slots, publications, triggers. Repeating it does nothing."""

    def snapshot(self, table: str) -> TableSnapshot:
        """All rows of a table as of one moment, read beside the capture, to compare them with the copy."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a database is captured. `name` is the name of the capture, which is unique in the log.

    `identity` distinguishes logs: what is created in the database is named after both, so that two logs can capture
    the same database under the same name. A capture gives up its place in the server's log rather than let the server
    retain more than `max_retained_bytes` for it. `dropped` names columns, as "table.column", that may have gone: their
    values are null from then on.
    """

    name: str = "capture"
    identity: str = ""
    chunk_rows: int = 50_000
    heartbeat_seconds: float = 10.0
    max_retained_bytes: int | None = None
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TableCopy:
    """How far the copy of a table has come. `estimated_rows` is the server's guess, if it has one."""

    table: str
    state: Literal["waiting", "copying", "complete"]
    rows: int = 0
    estimated_rows: int | None = None


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """What a server retains for a capture, and how far behind it is.

    `problem` is one sentence if the capture cannot continue as it is (its changes are lost, its slot is gone), and
    `hint` what to do then. `seconds_to_full`: when the server's disk or limit is full if nobody captures, at the
    present rate. None: not known.
    """

    state: str
    behind_bytes: int | None = None
    retained_bytes: int | None = None
    limit_bytes: int | None = None
    seconds_to_full: float | None = None
    last_commit: datetime | None = None
    problem: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Rows of a table as of one moment: all that was committed before it is at or before `end`.

    `batches` are like those of `read`, without deletes, in any order; `COMMIT_TIME` means nothing in them. To be
    consumed once.
    """

    end: Position
    batches: Iterator[pa.RecordBatch]
