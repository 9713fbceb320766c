"""The contract of logs: topics to read, writers to write, and what only some logs can do beside it.

The embedded log of `penstock.log` is one; `penstock.testing.MemoryLog` is another. The engine and the connectors use
nothing of a log but what is written here. What only some logs can do is a power: a small Protocol of its own, asked for
with `isinstance`. Without it the engine has a slower way, or does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from penstock.calls import answer_constructor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Offsets: TypeAlias = "Mapping[int, int]"
"""An offset for each partition, by its number."""

Start: TypeAlias = "int | str | datetime | Mapping[int, int]"
"""Where to read from: an offset, 'start', 'end', a time (also as ISO 8601 text), or an offset for each partition."""

Position: TypeAlias = "bool | int | float | str | Sequence[Position | None] | Mapping[str, Position | None]"
"""How far a source has been written: any JSON value. Where None is allowed, it means "from the beginning"."""

Rows: TypeAlias = "pa.RecordBatch | Sequence[Mapping[str, object]]"
DeleteMarks: TypeAlias = "Sequence[bool] | pa.BooleanArray"

DELETED = "_deleted"
"""The column that marks rows which delete their key, where delete markers are read together with other rows."""


# -- topics -----------------------------------------------------------------------------------------------------------


@answer_constructor()
@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What is decided when a topic is created. Only retention and the schema can be changed later.

    A log may not know all of it: durability, versions, segments and sizes of batches are those of the embedded log.
    """

    partitions: int = 1
    key: tuple[str, ...] = ()
    time: str | None = None
    durability: str = "fsync"  # acknowledged means on disk; "os": acknowledged means handed to the operating system
    versioned: bool = False  # number the events of each key, for conditional appends
    retention_seconds: float | None = None
    retention_bytes: int | None = None  # per partition
    segment_bytes: int = 128 * 1024 * 1024
    max_batch_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one partition, in the order of their offsets. `rows` has the columns that were asked for."""

    partition: int
    rows: pa.RecordBatch
    offsets: npt.NDArray[np.int64]
    deleted: pa.Array[pa.BooleanScalar] | None  # where a row deletes its key; None: nowhere
    versions: pa.Array[pa.Int64Scalar] | None  # on versioned topics: the number of each event of its key
    append_time: int  # microseconds since 1970
    producer: int  # 0: none

    @property
    def next_offset(self) -> int:
        return int(self.offsets[-1]) + 1

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def rows_kept(self) -> pa.RecordBatch:
        """The rows without those that only delete their key."""
        import pyarrow.compute as pc

        return self.rows if self.deleted is None else self.rows.filter(pc.invert(self.deleted))

    @property
    def rows_marked(self) -> pa.RecordBatch:
        """All rows, with one more column, `_deleted`: whether a row only deletes its key."""
        import pyarrow as pa

        marks = pa.repeat(False, len(self)) if self.deleted is None else self.deleted
        return self.rows.append_column(DELETED, marks)

    def slice(self, start: int, length: int | None = None) -> Batch:
        stop = len(self) if length is None else start + length
        return Batch(
            self.partition,
            self.rows.slice(start, stop - start),
            self.offsets[start:stop],
            None if self.deleted is None else self.deleted.slice(start, stop - start),
            None if self.versions is None else self.versions.slice(start, stop - start),
            self.append_time,
            self.producer,
        )


class Topic(Protocol):
    """A topic of an open log: typed rows in partitions, each row at an offset that never changes.

    Offsets of a partition only grow, and may have gaps. What was read once is read again the same way, unless the log
    has removed it (see `KeepsHolds`). Safe to use from many threads.
    """

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str:
        """Distinguishes the topic from every other one, including a topic of the same name that was dropped."""

    @property
    def schema(self) -> pa.Schema:
        """The newest schema. Older rows are read with it too: with null in columns that they do not have."""

    @property
    def schema_version(self) -> int:
        """Grows with every change of the schema."""

    @property
    def settings(self) -> TopicSettings: ...

    def evolve(self, schema: str | pa.Schema) -> pa.Schema:
        """Add nullable columns or widen types; the schema after it. DeclarationError for any other change."""

    def append(self, rows: Rows | pa.Table, *, deleted: DeleteMarks | None = None) -> object:
        """Store rows, each in the partition of its key, under no producer's name. RowError if one does not fit."""

    def starts(self) -> dict[int, int]:
        """The first offset of each partition that is still kept."""

    def ends(self) -> dict[int, int]:
        """The offset that the next row of each partition will get at the earliest."""

    def positions(self, start: Start) -> dict[int, int]:
        """The offsets that a start means: for every partition, or for those that it names.

        A time means the first offset from which on an event of that time or later is found.
        """

    def batches(
        self, start: Start = "start", *, until: Offsets | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Batch]:
        """Rows from `start` up to `until` (exclusive; None: the present end), one partition after the other.

        The rows that only delete their key are among them. A partition that `start` gives no offset for is left out.
        RangeError if rows were removed that should be read.
        """


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TopicRows:
    """Rows for one topic, in their order. `deleted` marks those that delete their key; None: there are none."""

    topic: str
    rows: Rows | pa.Table
    deleted: DeleteMarks | None = None


class Writer(Protocol):
    """A name under which exactly one process writes, and the position that it has reached.

    Opening a writer fences whoever had the name: once it is open, nothing that an earlier holder writes is stored.
    Rows and position are stored in one step. So after a crash at any moment, opening the writer again gives a position,
    and the rows that are stored under its name are exactly those that were written up to that position.

    One thread at a time calls it. After an UnavailableError nothing was stored, and the same call may be made again.
    After an UnknownOutcomeError the writer must be opened again; its position then tells what became of the call.
    """

    @property
    def token(self) -> int:
        """The fencing token: higher than that of everybody who had the name before."""

    @property
    def position(self) -> Position | None:
        """The position that was stored last, by whoever had the name; None before the first."""

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        """Store rows of one or several topics together with the position: all of it, or nothing.

        True: it is stored, as durably as the log promises. False: this position was stored last, and nothing has
        changed: the call repeats one whose outcome was not known. So no two calls in a row may mean different rows and
        give the same position. Rows of a topic that have the same key keep their order. Without rows, only the position
        moves. Positions are compared as JSON, and are not ordered. At least 512 MiB of rows, as Arrow holds them, fit
        into one call.

        FencedError: another process has opened this writer. RowError: a row does not fit its topic; nothing is stored.
        """

    def close(self) -> None:
        """Release what is open. What was written stays; calling it again does nothing."""


@runtime_checkable
class StagesRows(Protocol):
    """The power of a writer that takes the rows of one write in parts, in flat memory, however many they are.

    Between the first `stage` of a write and the write itself, the same writer writes nothing else.
    """

    def stage(self, rows: Sequence[TopicRows]) -> None:
        """Check rows and set them aside, on disk if they are many. The next `write` stores them before its own rows.

        All of it is one step, as without staging: together with the position, or not at all. A `write` that is answered
        as a repeat forgets them; one that fails keeps them. After a RowError (a row does not fit its topic) or an
        UnavailableError, these rows are not set aside, and those of earlier calls still are.
        """

    def discard(self) -> None:
        """Forget what was set aside since the last `write`."""


# -- the log itself ---------------------------------------------------------------------------------------------------


class Log(Protocol):
    """An open log. Safe to use from many threads; a forked process opens it again by its URL."""

    @property
    def url(self) -> str:
        """The URL by which any process opens this log, wherever it runs: see `penstock.logs.open_log`."""

    @property
    def apps_folder(self) -> Path:
        """Where apps of this log keep their epochs, states and views. The driver and all tasks can reach it."""

    def topics(self) -> list[str]:
        """The names of all topics."""

    def topic(self, name: str) -> Topic:
        """Open a topic. DeclarationError if it does not exist."""

    def create_topic(self, name: str, schema: str | pa.Schema, *, settings: TopicSettings | None = None) -> Topic:
        """Create a topic. `schema` is Spark DDL text or an Arrow schema. DeclarationError if it exists."""

    def writer(self, name: str) -> Writer:
        """Become the writer of this name. Whoever held the name before is refused from now on."""

    def position(self, writer: str) -> Position | None:
        """The position that the writer of this name stored last; None for none. Asking replaces nobody."""

    def close(self) -> None:
        """Release what is open. Calling it again does nothing."""


# -- powers of logs ---------------------------------------------------------------------------------------------------


@runtime_checkable
class FindsConsistentEnds(Protocol):
    """The power of a log that has transactions over several partitions. Without it, the engine takes `Topic.ends`."""

    def consistent_ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """The ends of several topics with every transaction whole: before all of these ends, or behind all of them."""


class Watch(Protocol):
    """Waits for something to happen. Create it before looking, so that nothing in between goes unnoticed."""

    def wait(self, timeout: float) -> bool:
        """Return True as soon as something may have happened since the last wait, False after `timeout` seconds."""

    def close(self) -> None: ...


@runtime_checkable
class Wakes(Protocol):
    """The power of a log that wakes readers at its end. Without it, the engine looks again after a while."""

    def watch(self, topics: Iterable[str]) -> Watch:
        """Watch for rows that are appended to these topics."""


@runtime_checkable
class KeepsPromises(Protocol):
    """The power of a log whose producers can promise that nothing earlier than some time will follow from them."""

    def promised_times(self, topic: str, read: Offsets) -> dict[int, int]:
        """By producer, the latest time (microseconds since 1970) that it has promised in this topic.

        Only promises count that were made before the offsets in `read`: what came before the others is yet to be read.
        """


@runtime_checkable
class NamesProducers(Protocol):
    """The power of a log that knows its producers by name."""

    def producers(self) -> dict[int, str]:
        """The names of all producers, by the ids that batches carry."""


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Rows of one partition, from `start` up to `end` (exclusive). The id distinguishes topics of one name."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadOffset:
    """How far a reader has read one partition: it needs the delete markers from `offset` on."""

    topic: str
    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Hold:
    """What one owner holds and how far it has read, and since when (ISO 8601).

    `token`: whoever has a lower one was replaced as the owner.
    """

    name: str
    ranges: tuple[HeldRange, ...]
    placed: str
    number: int = 0  # grows with every change of this hold
    read: tuple[ReadOffset, ...] = ()
    token: int = 0


@runtime_checkable
class KeepsHolds(Protocol):
    """The power of a log that removes rows: what is held, it keeps. A log that removes nothing needs no holds."""

    def hold(
        self,
        name: str,
        ranges: Mapping[str, Mapping[int, tuple[int, int]]],
        *,
        read: Sequence[ReadOffset] = (),
        token: int = 0,
    ) -> None:
        """Keep rows as they are until `release`: by topic and partition, those from start up to end (exclusive).

        They are read again with the same offsets, append times and producers, also after a crash. `read` registers
        `name` as a reader that has come so far: the delete markers from there on are kept. This replaces what `name`
        held before. RangeError if a row is gone already: nothing is changed. FencedError if the hold was placed with a
        higher `token`.
        """

    def release(self, name: str) -> None:
        """Give up the hold of this name. Releasing what is not held does nothing."""

    def holds(self) -> list[Hold]:
        """All holds. DamagedError if one of them cannot be read."""


# -- powers of topics -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """How much of a partition lies before some of its offsets. Both arrays grow; in between, it grows evenly."""

    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@runtime_checkable
class MeasuresExtents(Protocol):
    """The power of a topic that knows how much lies between two offsets. Without it, the engine reads the rows.

    Both stop measuring where `limit` is surely exceeded, if there is one.
    """

    def row_extent(self, partition: int, start: int, end: int, *, limit: int | None = None) -> Extent:
        """How many rows lie from `start` up to `end`, exactly at the offsets of the extent."""

    def byte_extent(self, partition: int, start: int, end: int, *, limit: int | None = None) -> Extent:
        """About how many stored bytes lie from `start` up to `end`."""


Summaries: TypeAlias = "npt.NDArray[np.void]"
"""Records about consecutive groups of rows that were stored together, with these int64 (or smaller) fields:
`base_offset` and `last_offset`, `rows`, `producer`, `append_time`, the smallest and largest event time `min_time`
and `max_time` (`units.NO_TIME` where there is none), and `transaction`: rows with the same number, in all topics of the
log, were stored in one step; 0 for rows that were stored alone. Rows of one transaction have the same append time in
all partitions, append times of a partition never go back, and two transactions are in the same order in every partition
where both have rows."""


@runtime_checkable
class SummarisesRows(Protocol):
    """The power of a topic that knows whose rows are of what time without reading them."""

    def summaries(self, partition: int, start: int, until: int) -> Iterator[Summaries]:
        """Summaries of the rows from `start` up to `until`, many at a time.

        Groups are whole: the first and the last may have rows outside of the range.
        """
