"""The contract of targets: where the answers of an app are mirrored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table that a target keeps: its name, its columns, and the key, if no two rows share one.

    `key` is None for a table whose rows may repeat (a bag), and empty for one that has at most one row. Null is a value
    like others in a key: two rows with the same nulls have the same key. `version` distinguishes tables of one name and
    the same columns: it is another one when rows come about in another way, and old ones must not be mixed with new
    ones.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Rows, and how many of each were added (a positive weight) or taken away (a negative one).

    The columns of `rows` are those of the answer, in any order. `weights` has an int64 for each row, and no nulls.
    """

    rows: pa.RecordBatch
    weights: pa.Array[pa.Int64Scalar]

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, weight: str) -> Changes:
        """From a batch that has the weights in one of its columns."""
        return cls(batch.drop_columns([weight]), batch.column(weight))


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a target that cannot take back writes the rows of a sink, such as a topic.

    `id` distinguishes it from others, also from one of the same name that was dropped before. `is_empty`: nothing was
    ever written there.
    """

    id: str
    is_empty: bool


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """What a target has: the last epoch that was applied, and more, depending on its powers.

    Of a target that `KeepsTables`: the versions of its tables, also of hidden ones. Of one that `CannotTakeBack`: by
    sink the destinations that exist. They are None for all other targets.
    """

    epoch: int = 0
    tables: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    destinations: Mapping[str, Destination] | None = None

    @property
    def can_take_back(self) -> bool:
        return self.destinations is None


class Target(Protocol):
    """Where answers of an app are mirrored. It takes each epoch once, whole, and only from the app's newest instance.

    The instance that runs the app calls, from one thread at a time: `take_over` once, then `apply` for one epoch after
    the other, then `close`. A token is the number of an instance: each start of the app has a higher one. After an
    UnavailableError the same call may be made again: whatever became of the first, nothing is applied twice. The loop
    around epochs does so, hence a target does not retry by itself.

    What only some targets can do is a power, a Protocol of its own below: `KeepsTables`, `CannotTakeBack`,
    `LimitsEpochs`.
    """

    def take_over(self, app: str, token: int) -> int:
        """Become the instance that may apply epochs; returns the number of the last one that was applied, 0 for none.

        Once it has returned, every call by an instance with a lower token is refused with FencedError, including one
        that is under way in another process and has not been applied yet. FencedError if an equal or higher token took
        over before.
        """

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        """Apply the changes of an epoch, by sink: all of them together with its number, or nothing.

        True: they are applied, durably. False: this epoch or a later one was before, and nothing has changed; the
        changes were not read. `show` names sinks that are completely built: if their tables were built hidden, readers
        see them from this epoch on.

        A table with a key: keys of rows with a negative weight go, then rows with a positive one take the place of the
        row of their key. A bag: as many rows as the weight says come or go; in between, but not at the end, there may
        be fewer than none of a row. The order of rows and batches does not matter, as long as no key is added twice.
        """

    def close(self) -> None:
        """Release what is open. What was applied stays; calling it again does nothing."""


@runtime_checkable
class KeepsTables(Protocol):
    """The power of a target that keeps answers as tables: new ones can be built hidden beside the old, and dropped.

    An answer that changes, or whose table is at another epoch than the app, is rebuilt from the log, hidden until it is
    complete. All of it is called after `take_over`.
    """

    def status(self) -> TargetStatus:
        """The last epoch that was applied, and the versions of all tables."""

    def declare(self, tables: Sequence[TargetTable], *, hidden: bool = False) -> None:
        """Create the tables that are missing; those that exist as declared stay as they are.

        If a table exists with other columns, another key or another version: with `hidden`, a new one is created beside
        it, receives the changes from then on, and is shown by a later `apply`; otherwise DeclarationError, and nothing
        is created.
        """

    def drop(self, names: Iterable[str]) -> None:
        """Remove tables with all their rows, also hidden ones. Unknown names are ignored."""

    def realign(self, epoch: int) -> None:
        """Treat `epoch` as the last one applied: the app went back or started anew, and rebuilds what it needs."""


@runtime_checkable
class CannotTakeBack(Protocol):
    """The trait of a target that cannot take back what it wrote, because others may have read it.

    A sink starts with an empty destination. It is muted while a rebuild repeats what was written before; if the rebuilt
    answer differs, the program is refused. All of it is called after `take_over`.
    """

    def prepare(self, sinks: Iterable[str]) -> None:
        """Create the missing destinations of these sinks. Called once, before the first epoch."""

    def last_epoch(self) -> int:
        """The last epoch that was applied; 0 for none."""

    def destinations(self) -> Mapping[str, Destination]:
        """Where each sink that was prepared writes."""


@runtime_checkable
class LimitsEpochs(Protocol):
    """The trait of a target that accepts only so much in one epoch.

    `apply` raises TooMuchError if it is given more, and has changed nothing. Such targets are given an epoch before
    those without a limit, so that it can be planned again with fewer rows while nobody has seen anything of it.
    """

    def most_bytes(self) -> int:
        """How much it accepts in one epoch, in bytes of Arrow memory."""
