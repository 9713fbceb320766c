"""The few contracts that parts of Penstock meet through: plain data, and Protocols whose docstrings say what holds.

Nothing here does anything, and importing it loads nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view as a table: its name, its columns, and the key, if no two rows share one.

    `key` is None for a view whose rows may repeat (a bag), and empty for one that has at most one row. Null is a value
    like others in a key: two rows with the same nulls have the same key. `version` tells views of one name and the same
    columns apart: it is another one when rows come about in another way, and old ones must not be mixed with new ones.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ViewChanges:
    """Rows of a view, and how many of each were added (a positive weight) or taken away (a negative one).

    The columns of `rows` are those of the view, in any order. `weights` has an int64 for each row, and no nulls.
    """

    rows: pa.RecordBatch
    weights: pa.Array[pa.Int64Scalar]

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, weight: str) -> ViewChanges:
        """From a batch that has the weights in one of its columns."""
        return cls(batch.drop_columns([weight]), batch.column(weight))


class Sink(Protocol):
    """Where the answers of an app are kept. It takes each epoch once, whole, and only from the app's newest instance.

    The instance of an app that runs it calls, from one thread at a time: `take_over` once, then `apply` for one epoch
    after the other, then `close`. A token is the number of an instance: each start of the app has a higher one.
    After an UnavailableError the same call may be made again: whatever became of the first, nothing is applied twice.
    """

    def take_over(self, app: str, token: int) -> int:
        """Be the instance that may apply from now on; the number of the last epoch that was applied, 0 for none.

        Once it has returned, every call with a lower token is refused with FencedError, also one that is under way in
        another process and has not yet been applied. An equal or higher token that was here before: FencedError.
        """

    def apply(
        self, epoch: int, token: int, changes: Mapping[str, Iterable[ViewChanges]], *, facts: Mapping[str, object]
    ) -> bool:
        """Apply the changes of an epoch to the views, by name: all of them, with the epoch and the facts, or nothing.

        True: they are applied, durably. False: they were before, and nothing has changed; the changes were not read.
        Epochs go up by one: a gap is a ConflictError. An older token is a FencedError.

        A view with a key: keys of rows with a negative weight go, then rows with a positive one take the place of the
        row of their key. A bag: as many rows as the weight says come or go; in between, but not at the end, there may
        be fewer than none of a row. The order of rows and batches does not matter, as long as no key is added twice.

        `facts` is a JSON document about the epoch. Under "views" it may have, for each view, what readers are shown:
        "watermark" (ISO 8601 or null) and "events".
        """

    def close(self) -> None:
        """Let go of everything. What was applied stays; calling it again does nothing."""


class TableSink(Sink, Protocol):
    """A sink that keeps views as tables, and must know their columns before the first change."""

    def declare(self, views: Sequence[ViewTable]) -> None:
        """Make what is missing of these views, after `take_over`; views that are there as declared stay as they are.

        A view that is there with other columns, another key or another version: DeclarationError, and nothing is made.
        """
