"""The contract of stateful operators, and the columns they share.

Rows between operators are changes: the user's columns, and hidden ones that begin with an underscore. `_weight` says
how often a row is added, or retracted if it is negative; a row without it is added once. `_h1` and `_h2` are two hashes
of the key by which the rows were partitioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.engine.state.arrangement import Arrangement, Kind
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER, WHOLE
from penstock.engine.state.rows import Numbers, filter_rows, hashes, integers, with_columns, without_columns
from penstock.engine.state.run import Run
from penstock.engine.state.search import Hashes, Mask

WEIGHT = "_weight"
HASH = "_h1"
SECOND_HASH = "_h2"
ROW_HASH = "_row"  # of all columns, where the state holds the rows of groups
MOMENT = "_time"  # the event time in microseconds
PARTITION = "_partition"  # with the offset, where a row is in its topic
OFFSET = "_offset"
DEADLINE = "_deadline"  # the watermark from which on an event is late
# How many events a row counts for in the accounts: an event in several windows counts in its last one, and one that has
# passed through another state is not counted again. Without this column a row counts as often as it was added.
EVENTS = "_events"
REVISION = "_revision"  # how often an answer was corrected after its window had closed


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermark before this epoch and after it, in microseconds; far in the past while there is none."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step: changes for the next operator, to be read once; a run for its state; and counts.

    The counts: `events` that came, `late` ones among them, in `late_groups` rows; `corrected` answers, which changed
    after their windows had closed.
    """

    output: Iterable[pa.RecordBatch]
    run: Run
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """The result of a step of an operator with two states."""

    output: Iterable[pa.RecordBatch]
    left: Run
    right: Run
    left_counts: dict[str, int] = field(default_factory=dict)
    right_counts: dict[str, int] = field(default_factory=dict)


class StateSpec(Protocol):
    """What one state holds. It is pickled once per app, and has no data itself."""

    @property
    def state(self) -> str:
        """The name of the state. It stays the same as long as the stored rows mean the same."""
        ...

    @property
    def kind(self) -> Kind: ...

    def schema(self, changes: pa.Schema) -> pa.Schema:
        """The columns of the state's runs, given those of the operator's input."""
        ...

    def expiry(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        """For each row of the state the watermark from which on no event can reach it any more; None: never.

        `whole` says that these are all rows of the state, not only those of some runs.
        """
        ...


class Operator(StateSpec, Protocol):
    """A node with a state, as its tasks see it."""

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, watermarks: Watermarks) -> Outcome:
        """Process the changes of one epoch in one state partition, in any order. Called again after a failure."""
        ...


@runtime_checkable
class Condenses(Protocol):
    """An operator that can drop changes early, so that those of an epoch need not all be in memory at once."""

    def condense(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Some of an epoch's changes without those that `step` does not need; and how many events were dropped."""
        ...


class PairOperator(Protocol):
    """A node with two states, one for each side."""

    @property
    def left(self) -> StateSpec: ...

    @property
    def right(self) -> StateSpec: ...

    def step(
        self, changes: pa.RecordBatch, left: Arrangement, right: Arrangement, watermarks: Watermarks
    ) -> PairOutcome:
        """Process the changes of both sides in one epoch, in any order. Called again after a failure."""
        ...


def hashes_of(changes: pa.RecordBatch) -> tuple[Hashes, Hashes]:
    return hashes(changes, HASH), hashes(changes, SECOND_HASH)


def events_of(changes: pa.RecordBatch) -> Numbers:
    """How many events each change counts for in the accounts."""
    if EVENTS in changes.schema.names:
        return integers(changes, EVENTS)
    if COUNT in changes.schema.names:
        return np.abs(integers(changes, COUNT))
    return np.ones(changes.num_rows, dtype=np.int64)


def drop_late(changes: pa.RecordBatch, late: Mask) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The changes that are not late, and the counts of all of them."""
    events = events_of(changes)
    counts = {"events": int(events.sum())}
    if late.any():
        counts |= {"late": int(events[late].sum()), "late_groups": int(late.sum())}
    return filter_rows(changes, ~late), counts


def as_changes(rows: pa.RecordBatch, weight: int, *without: str) -> pa.RecordBatch:
    """Rows of a state as changes with this weight."""
    columns = without_columns(rows, ORDER, ID, GONE, WHOLE, *without)
    return with_columns(columns, {WEIGHT: np.full(rows.num_rows, weight, dtype=np.int64)})


def replacement_changes(
    old: pa.RecordBatch, has_old: Mask, new: pa.RecordBatch, is_live: Mask, *, upserts: bool
) -> list[pa.RecordBatch]:
    """The changes that replace the old rows of some keys by new ones, of which those that are not live are deletions.

    With `upserts` the reader replaces a row by its key, so that an old row is retracted only if its key is deleted.
    """
    retracted_rows = filter_rows(old, ~is_live[has_old]) if upserts else old
    return [as_changes(retracted_rows, -1), as_changes(filter_rows(new, is_live), 1)]


def old_numbers(old: pa.RecordBatch, has_old: Mask, name: str) -> Numbers:
    """For all keys that were looked up, the number that their old row has in a column; 0 for keys without one."""
    numbers = np.zeros(len(has_old), dtype=np.int64)
    numbers[has_old] = integers(old, name)
    return numbers


def with_run_key(batch: pa.RecordBatch, order: Hashes, id_: Hashes) -> pa.RecordBatch:
    """The batch with the order and the id that its rows have in a run."""
    return with_columns(batch, {ORDER: order.view(np.int64), ID: id_.view(np.int64)})


def run_schema(changes: pa.Schema, extra: dict[str, pa.DataType], without: Sequence[str]) -> pa.Schema:
    """The columns of a run: those of the changes but for some, the `extra` ones, order and id."""
    types = {field.name: field.type for field in changes if field.name not in without}
    return pa.schema([*({**extra, **types, ORDER: pa.int64(), ID: pa.int64()}).items()])
