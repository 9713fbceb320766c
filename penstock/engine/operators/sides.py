"""The two sides of a join in one batch of changes.

A column of the batch is a *slot*: it may hold one column of the left rows and another of the right ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.operators.contract import EVENTS, HASH, ROW_HASH, SECOND_HASH
from penstock.engine.operators.members import MEMBERS, members_schema
from penstock.engine.state.arrangement import Adding
from penstock.engine.state.columns import COUNT
from penstock.engine.state.rows import filter_rows, with_columns
from penstock.engine.state.search import Mask

SIDE = "_side"  # whether a row is of the right side
LEFT, RIGHT = "_left", "_right"  # prefixes of the user's columns
# The second hash of a key with a null, which never has a partner. Its first hash is that of the whole row.
NO_LEFT_KEY, NO_RIGHT_KEY = -1, -2

_HASHES = {name: name for name in (HASH, SECOND_HASH, ROW_HASH)}


@dataclass(frozen=True, slots=True)
class SideColumns:
    """The columns of one side, and for each of them the slot that holds it.

    Changes without a count are added once.
    """

    slots: Mapping[str, str]

    def user_columns(self, prefix: str) -> list[str]:
        """The user's columns."""
        return [name for name in self.slots if name.startswith(prefix)]

    def rows(self, changes: pa.RecordBatch, of_side: Mask) -> pa.RecordBatch:
        """The changes of this side."""
        slots = {**self.slots, **_HASHES, **{name: name for name in (COUNT, EVENTS) if name in changes.schema.names}}
        rows = filter_rows(changes.select(list(slots.values())), of_side).rename_columns(list(slots))
        return rows if COUNT in slots else with_columns(rows, {COUNT: np.ones(rows.num_rows, dtype=np.int64)})

    def schema(self, changes: pa.Schema) -> pa.Schema:
        """The schema of the side's state, given that of the changes."""
        fields = {name: changes.field(slot).type for name, slot in {**self.slots, **_HASHES}.items()}
        return members_schema(pa.schema([*fields.items(), (COUNT, pa.int64())]))


@dataclass(frozen=True, slots=True)
class SideRows:
    """A state that holds the rows of one side. Each kind of join decides when they expire."""

    state: str
    columns: SideColumns

    @property
    def kind(self) -> Adding:
        return MEMBERS

    def schema(self, changes: pa.Schema) -> pa.Schema:
        return self.columns.schema(changes)
