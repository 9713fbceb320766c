"""The two sides of a join in one batch of changes; a column may hold one thing of left rows, another of right ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import EVENTS, HASH, ROW_HASH, SECOND_HASH
from penstock.engine.operators.members import MEMBERS, members_schema
from penstock.engine.state.arrangement import Adding
from penstock.engine.state.columns import COUNT
from penstock.engine.state.rows import picked, with_columns
from penstock.engine.state.search import Mask

SIDE = "_side"  # whether a row is of the right side
LEFT, RIGHT = "_left", "_right"  # how the columns of the user begin
# In place of the second hash of a key that is null, and so never has a partner; its first hash is that of the row.
NO_LEFT_KEY, NO_RIGHT_KEY = -1, -2

_HASHES = {name: name for name in (HASH, SECOND_HASH, ROW_HASH)}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one side, by the name of the column of changes that holds each of them.

    Changes without a count of their own are added once.
    """

    places: Mapping[str, str]

    def own(self, prefix: str) -> list[str]:
        """The columns of the user."""
        return [name for name in self.places if name.startswith(prefix)]

    def rows(self, changes: pa.RecordBatch, chosen: Mask) -> pa.RecordBatch:
        """The changes of this side."""
        places = {**self.places, **_HASHES, **{name: name for name in (COUNT, EVENTS) if name in changes.schema.names}}
        some = picked(changes.select(list(places.values())), chosen).rename_columns(list(places))
        return some if COUNT in places else with_columns(some, {COUNT: np.ones(some.num_rows, dtype=np.int64)})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        """What is kept of them, given the schema of changes."""
        fields = {name: changes.field(place).type for name, place in {**self.places, **_HASHES}.items()}
        return members_schema(pa.schema([*fields.items(), (COUNT, pa.int64())]))


@dataclass(frozen=True, slots=True)
class SideRows:
    """A state that holds the rows of one side; when they go says each kind of join."""

    state: str
    columns: Columns

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return self.columns.schema(changes)
