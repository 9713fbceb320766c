"""What every stateful operator is, and the columns they share.

Rows between operators are changes: columns of the user, and hidden ones that begin with an underscore. `_weight` says
how often a row was added (or taken away, where it is negative); rows without it are added once. `_h1` and `_h2` are
two hashes of the key by which the rows were brought together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.engine.state.arrangement import Arrangement, Kind
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER, WHOLE
from penstock.engine.state.rows import Numbers, hashes, integers, picked, with_columns, without_columns
from penstock.engine.state.run import Run
from penstock.engine.state.search import Hashes, Mask

WEIGHT = "_weight"
HASH = "_h1"
SECOND_HASH = "_h2"
ROW_HASH = "_row"  # of a whole row, where the rows of groups are kept
MOMENT = "_time"  # the event time in microseconds
PARTITION = "_partition"  # with the offset, the place of a row in its topic
OFFSET = "_offset"
DEADLINE = "_deadline"  # the watermark at which an event is too late
# How many events count here for the books: one that is in several windows counts in its last one, and one that has met
# state before does not count again. Where it is missing, each row counts as often as it was added.
EVENTS = "_events"
REVISION = "_revision"  # how often an answer was corrected after its window had closed


@dataclass(frozen=True, slots=True)
class Times:
    """The watermark before this epoch and after it, in microseconds; a long time ago where there was none."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operator did: changes for the next one (to be read once), a run for its state, and what it counted.

    `events` came, of which `late` came too late, in `late_groups` rows; `corrected` answers were changed after their
    windows had closed.
    """

    output: Iterable[pa.RecordBatch]
    run: Run
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """The same of an operator with two states."""

    output: Iterable[pa.RecordBatch]
    left: Run
    right: Run
    left_counts: dict[str, int] = field(default_factory=dict)
    right_counts: dict[str, int] = field(default_factory=dict)


class Keeper(Protocol):
    """What is kept in one state. Pickled once per app; it holds nothing itself."""

    @property
    def state(self) -> str:
        """The name of the state: stays the same as long as what is kept means the same."""
        ...

    @property
    def kind(self) -> Kind: ...

    def schema(self, changes: pa.Schema) -> pa.Schema:
        """The columns of its runs, given those of the operator's input."""
        ...

    def expires(self, rows: pa.RecordBatch, whole: bool) -> Numbers | None:
        """For rows of its state the watermarks from which on they can no longer be reached; None: they last for ever.

        `whole` says that these are all rows of the state, and not those of some runs.
        """
        ...


class Operator(Keeper, Protocol):
    """A node with a state, as each of its tasks sees it."""

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        """Take one epoch's changes of one state partition, in any order; called again after a failure."""
        ...


@runtime_checkable
class Condensing(Protocol):
    """An operator that need not see all changes of an epoch at once, so that they need not be in memory together."""

    def condensed(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """What is left of some changes for `step`, and how many events are left out."""
        ...


class PairOperator(Protocol):
    """A node with two states, one for each side."""

    @property
    def left(self) -> Keeper: ...

    @property
    def right(self) -> Keeper: ...

    def step(self, changes: pa.RecordBatch, left: Arrangement, right: Arrangement, times: Times) -> PairOutcome:
        """Take one epoch's changes of both sides, in any order; called again after a failure."""
        ...


def hashes_of(changes: pa.RecordBatch) -> tuple[Hashes, Hashes]:
    return hashes(changes, HASH), hashes(changes, SECOND_HASH)


def events_of(changes: pa.RecordBatch) -> Numbers:
    """For how many events each change stands in the books."""
    if EVENTS in changes.schema.names:
        return integers(changes, EVENTS)
    if COUNT in changes.schema.names:
        return np.abs(integers(changes, COUNT))
    return np.ones(changes.num_rows, dtype=np.int64)


def on_time(changes: pa.RecordBatch, late: Mask) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The changes that are not late, and the books of all of them."""
    events = events_of(changes)
    counts = {"events": int(events.sum())}
    if late.any():
        counts |= {"late": int(events[late].sum()), "late_groups": int(late.sum())}
    return picked(changes, ~late), counts


def weighted(rows: pa.RecordBatch, weight: int, *without: str) -> pa.RecordBatch:
    """Rows of a state as changes."""
    bare = without_columns(rows, ORDER, ID, GONE, WHOLE, *without)
    return with_columns(bare, {WEIGHT: np.full(rows.num_rows, weight, dtype=np.int64)})


def keyed(batch: pa.RecordBatch, order: Hashes, id_: Hashes) -> pa.RecordBatch:
    """The batch with the order and the id that its rows have in a run."""
    return with_columns(batch, {ORDER: order.view(np.int64), ID: id_.view(np.int64)})


def run_schema(changes: pa.Schema, added: dict[str, pa.DataType], without: Sequence[str]) -> pa.Schema:
    """The columns of a run: those of the changes without some of them, `added` ones, order and id."""
    types = {field.name: field.type for field in changes if field.name not in without}
    return pa.schema([*({**added, **types, ORDER: pa.int64(), ID: pa.int64()}).items()])
