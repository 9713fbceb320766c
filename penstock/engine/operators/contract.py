"""What every stateful operator is, and the columns they share.

Rows between operators are changes: columns of the user, and hidden ones that begin with an underscore. `_weight` says how
often a row was added (or taken away, where it is negative); rows without it are added once. `_h1` and `_h2` are two
hashes of the key by which the rows were brought together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.engine.state.arrangement import GONE, Arrangement, Keep, Kind
from penstock.engine.state.run import ID, ORDER, Hashes, Run

WEIGHT = "_weight"
HASH = "_h1"
SECOND_HASH = "_h2"


@dataclass(frozen=True, slots=True)
class Times:
    """The watermark before this epoch and after it, in microseconds; a long time ago where there was none."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operator did: changes for the next one, a run for its state, and what it counted."""

    output: Sequence[pa.RecordBatch]
    run: Run | None = None
    counts: dict[str, int] = field(default_factory=dict)


class Operator(Protocol):
    """A stateful node, as each of its tasks sees it. Pickled once per app; it holds no state of its own."""

    @property
    def state(self) -> str:
        """The name of its state: stays the same as long as what is kept means the same."""
        ...

    @property
    def kind(self) -> Kind: ...

    def schema(self, changes: pa.Schema) -> pa.Schema:
        """The columns of its runs, given those of its input."""
        ...

    def step(self, changes: pa.RecordBatch, arrangement: Arrangement, times: Times) -> Outcome:
        """Take one epoch's changes of one state partition. Called again after a failure, with the same arguments."""
        ...

    def keep(self, times: Times) -> Keep | None:
        """Which rows of its state can still be reached; None: all of them."""
        ...


def hashes_of(changes: pa.RecordBatch) -> tuple[Hashes, Hashes]:
    return (
        changes.column(HASH).to_numpy(zero_copy_only=True).view(np.uint64),
        changes.column(SECOND_HASH).to_numpy(zero_copy_only=True).view(np.uint64),
    )


def integers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """A column of whole numbers without nulls."""
    return batch.column(name).to_numpy(zero_copy_only=True)


def with_columns(batch: pa.RecordBatch, columns: dict[str, object]) -> pa.RecordBatch:
    """The batch with these columns added, or put in place of those with their names."""
    names, arrays = list(batch.schema.names), list(batch.columns)
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array) else pa.array(values)
        if name in names:
            arrays[names.index(name)] = array
        else:
            names.append(name)
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def without_columns(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in names])


def weighted(rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
    """Rows of a state as changes."""
    bare = without_columns(rows, ORDER, ID, GONE)
    return with_columns(bare, {WEIGHT: np.full(rows.num_rows, weight, dtype=np.int64)})


def keyed(batch: pa.RecordBatch, order: Hashes, id_: Hashes) -> pa.RecordBatch:
    """The batch as rows of a run: with their order and id, without the hashes they came with."""
    bare = without_columns(batch, HASH, SECOND_HASH)
    return with_columns(bare, {ORDER: order.view(np.int64), ID: id_.view(np.int64)})


def run_schema(changes: pa.Schema, added: dict[str, pa.DataType], without: Sequence[str] = ()) -> pa.Schema:
    """The columns of a run of changes: those of the changes without their hashes, `added` ones, order and id."""
    left_out = {HASH, SECOND_HASH, *without}
    kept = [pa.field(field.name, field.type) for field in changes if field.name not in left_out]
    names = {field.name for field in kept}
    kept += [pa.field(name, type_) for name, type_ in added.items() if name not in names]
    return pa.schema([*kept, pa.field(ORDER, pa.int64()), pa.field(ID, pa.int64())])
