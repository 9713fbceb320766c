"""The contract of sources: where facts come from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.contracts.log import DeleteMarks, Position, Rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a source: its name, its key, and its columns where they are known."""

    name: str
    schema: pa.Schema | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """Rows that a source has read from one of its tables, and the position after them.

    `deleted` marks rows that delete their key. An item without rows is a heartbeat: there is nothing more for now.
    An item without a position is no place to stop: its rows are stored with those of the next item that has one.
    """

    table: str
    rows: Rows = ()
    deleted: DeleteMarks | None = None
    position: Position | None = None


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
