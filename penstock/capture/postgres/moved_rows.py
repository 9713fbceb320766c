"""Rows whose key changed while a large value did not: the stream has that value neither under the old key nor the new.

It is read from the table, by the new key. A newer value than the one of that moment may be found there; its own change
follows. If the row is gone, its delete follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.catalog import literal, quoted
from penstock.capture.postgres.connection import Connection
from penstock.capture.postgres.conversion import convert_text
from penstock.capture.postgres.groups import GroupPart


def complete_moved_rows(connection: Connection, part: GroupPart) -> GroupPart:
    """The part with the missing values of rows whose key changed, and without their marks."""
    changes, layout = part.changes, part.table.layout
    if changes.moved is None:
        return part
    indexes = np.flatnonzero(changes.moved.to_numpy(zero_copy_only=False))
    keys = [pc.cast(changes.batch.column(name).take(indexes), pa.string()) for name in layout.key]
    names = ", ".join(f"{quoted(name)}::text" for name in changes.unchanged)
    condition = ", ".join(quoted(name) for name in layout.key)
    texts: list[tuple[object, ...] | None] = []
    for key in zip(*(column.to_pylist() for column in keys), strict=True):
        values = ", ".join(literal(text) for text in key)
        statement = f"SELECT {names} FROM {part.table.own_rows} WHERE ({condition}) = ({values})"
        texts.append(connection.execute(statement.encode()).fetchone())
    batch, unchanged = changes.batch, dict(changes.unchanged)
    for place, (name, marks) in enumerate(changes.unchanged.items()):
        missing = pc.and_(marks, changes.moved)
        found = pa.array([None if row is None else row[place] for row in texts], pa.string())
        (column,) = [column for column in layout.columns if column.name == name]
        values_of_rows: list[Any] = [None] * len(batch)
        for index, value in zip(indexes, convert_text(found, column, table=layout.name).to_pylist(), strict=True):
            values_of_rows[index] = value
        filled = pc.if_else(missing, pa.array(values_of_rows, column.arrow), batch.column(name))
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), filled)
        unchanged[name] = pc.and_not(marks, changes.moved)
    unchanged = {name: marks for name, marks in unchanged.items() if pc.any(marks).as_py()}
    return replace(part, changes=replace(changes, batch=batch, unchanged=unchanged, moved=None))
