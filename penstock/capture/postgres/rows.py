"""Changed rows of one table, from messages of pgoutput into Arrow, column by column. No I/O, and no loop over rows.

The journey: find_tuples (where each value is) -> _choose_rows (which tuples become rows) -> _texts -> convert_text.
pgoutput.py reads the same messages one by one; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.conversion import convert_text
from penstock.capture.postgres.pgoutput import Relation
from penstock.capture.postgres.row_id import row_ids
from penstock.capture.postgres.tuples import TEXT, UNCHANGED, Mask, Tuples, find_tuples
from penstock.capture.postgres.types import ROW_ID_COLUMN, Column, ColumnLayout, TableLayout
from penstock.errors import DeclarationError

_Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """Rows of a table, with the columns of `TableLayout.schema`. What is marked nowhere has None, or no entry.

    `deleted` marks rows that delete their key; beside it and the commit time, they have nulls. `unchanged` marks, by
    column, values that the server did not send because they are the same as before; they are null. `moved` marks those
    of these rows whose key changed: the values are those of the row that is deleted right before.
    """

    batch: pa.RecordBatch
    deleted: pa.BooleanArray | None
    unchanged: dict[str, pa.BooleanArray]
    moved: pa.BooleanArray | None


def decode_rows(
    messages: Sequence[bytes],
    relation: Relation,
    table: TableLayout,
    commit_times: npt.NDArray[np.int64],
    *,
    streaming: bool,
) -> RowChanges:
    """The rows of Insert, Update and Delete messages of one relation, in order, at most 2 GiB of them.

    `commit_times` has the time of each message, in microseconds since 1970. Columns are found by name: one that the
    relation lacks is null, one that the layout lacks is left out. An update that changes the key becomes a delete of
    the old key and a row.

    DamagedError: a message is not complete, or belongs elsewhere. DeclarationError: a value does not fit its type, or
    the replica identity of the table lacks columns of the key.
    """
    tuples = find_tuples(messages, relation.relation_id, len(relation.columns), streaming=streaming)
    found = _Found(relation, table, tuples)
    found.check_identity()
    rows = found.choose_rows()
    columns = [found.values(column, rows) for column in table.columns]
    times = pa.array(np.asarray(commit_times, np.int64)[tuples.message[rows]]).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([*columns, times], schema=table.schema)
    return RowChanges(batch, *found.marks(rows))


class _Found:
    """What was found in the messages of one call, by the columns of the layout."""

    def __init__(self, relation: Relation, table: TableLayout, tuples: Tuples) -> None:
        self._relation, self._table, self._tuples = relation, table, tuples
        self._index = {column.name: index for index, column in enumerate(relation.columns)}
        self._sources: dict[str, _Positions] = {}
        self._row_ids: Column | None = None

    def check_identity(self) -> None:
        """Old keys must contain the key of the layout, or its deletes and changes would go unnoticed."""
        has_identity = {column.name for column in self._relation.columns if column.is_key}
        is_full = self._relation.replica_identity == "f"
        missing = [name for name in self._table.key if name not in has_identity]
        if is_full or not missing or self._tuples.has_inserts_only:
            return
        schema, name = self._relation.namespace, self._relation.name
        raise DeclarationError(
            f"table {self._table.name}: the replica identity lacks the key; missing are {', '.join(missing)}",
            hint=f'ALTER TABLE "{schema}"."{name}" REPLICA IDENTITY FULL; then copy the table again',
        )

    def choose_rows(self) -> _Positions:
        """The tuples that become rows: all new ones, and old ones that delete their key."""
        tuples = self._tuples
        is_row = ~tuples.is_old
        is_row[:-1] |= tuples.is_old[:-1] & ~tuples.has_old[1:]
        is_row[-1:] |= tuples.is_old[-1:]
        news = np.flatnonzero(tuples.has_old)
        is_row[news[self._key_changed(news)] - 1] = True
        return np.flatnonzero(is_row)

    def values(self, column: ColumnLayout, rows: _Positions) -> Column:
        """The values of a column in these tuples."""
        if column == ROW_ID_COLUMN:
            return self._all_row_ids().take(rows)
        if column.name not in self._index and not column.is_key:
            return pa.array([None] * len(rows), column.arrow)
        texts = self._texts(column.name, rows, nothing=None if column.is_key else self._tuples.is_old[rows])
        if column.is_key and texts.null_count:
            raise DeclarationError(
                f"table {self._table.name}, column {column.name}: it belongs to the key, and a change does not have it",
                hint="choose a key whose columns are not null, and which belong to the replica identity of the table",
            )
        return convert_text(texts, column, table=self._table.name)

    def marks(
        self, rows: _Positions
    ) -> tuple[pa.BooleanArray | None, dict[str, pa.BooleanArray], pa.BooleanArray | None]:
        """The marks of these tuples, in the order in which RowChanges has them."""
        is_deleted = self._tuples.is_old[rows]
        unchanged: dict[str, pa.BooleanArray] = {}
        is_moved = np.zeros(len(rows), np.bool_)
        has_deleted = np.zeros(len(rows), np.bool_)
        has_deleted[1:] = self._tuples.has_old[rows[1:]] & (rows[1:] - 1 == rows[:-1])
        for column in self._table.table_columns:
            is_unchanged = self._is_unchanged(column.name, rows) & ~is_deleted
            if is_unchanged.any():
                unchanged[column.name] = pa.array(is_unchanged)
                is_moved |= is_unchanged & has_deleted
        deleted = pa.array(is_deleted) if is_deleted.any() else None
        return deleted, unchanged, pa.array(is_moved) if is_moved.any() else None

    def _source(self, name: str) -> _Positions:
        """For each tuple, the tuple with its value: itself, or the old row where the new one lacks it."""
        if name not in self._sources:
            kinds, has_old = self._tuples.kinds[self._index[name]], self._tuples.has_old
            source = np.arange(len(kinds))
            if (kinds == UNCHANGED).any():
                source[1:] -= (kinds[1:] == UNCHANGED) & has_old[1:] & (kinds[:-1] == TEXT)
            self._sources[name] = source
        return self._sources[name]

    def _is_unchanged(self, name: str, rows: _Positions) -> Mask:
        if name not in self._index:
            return np.zeros(len(rows), np.bool_)
        is_unchanged: Mask = self._tuples.kinds[self._index[name]][self._source(name)[rows]] == UNCHANGED
        return is_unchanged

    def _texts(self, name: str, rows: _Positions, *, nothing: Mask | None = None) -> Column:
        """The texts of a column in these tuples as binaries, and null where there is none or `nothing` is marked."""
        if name not in self._index:
            return pa.nulls(len(rows), pa.binary())
        index, source = self._index[name], self._source(name)[rows]
        is_null = self._tuples.kinds[index][source] != TEXT
        if nothing is not None:
            is_null |= nothing
        places: pa.Int64Array = pa.array(2 * source + 1, pa.int64(), mask=is_null if is_null.any() else None)
        return self._tuples.texts(index).take(places)

    def _key_changed(self, news: _Positions) -> Mask:
        """Which of these new rows, each with an old row right before it, have another key than that."""
        changed = np.zeros(len(news), np.bool_)
        if not len(news):
            return changed
        if self._table.has_row_id:
            ids = self._all_row_ids()
            pairs = [(ids.take(news), ids.take(news - 1))]
        else:
            pairs = [(self._texts(name, news), self._texts(name, news - 1)) for name in self._table.key]
        for new, old in pairs:
            differs: Column = pc.not_equal(new, old)
            changed |= differs.fill_null(False).to_numpy(zero_copy_only=False)
        return changed

    def _all_row_ids(self) -> Column:
        if self._row_ids is None:
            everything = np.arange(len(self._tuples))
            self._row_ids = row_ids([self._texts(column.name, everything) for column in self._table.table_columns])
        return self._row_ids
