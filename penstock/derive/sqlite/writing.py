"""The changes of an epoch on their way into the tables of a view, with as few and as large statements as possible.

A view with a key: all changes are sorted by key, so that each page is written once and in order; per key there is one
thing left to do, to replace its row or to delete it. A view without a key: rows come first, then go.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from penstock.contracts import Changes
from penstock.derive.sqlite import layout
from penstock.derive.sqlite.columns import Numbers, nulls_of, values_of
from penstock.derive.sqlite.layout import StoredView
from penstock.derive.sqlite.sorting import last_per_key
from penstock.derive.sqlite.values import parameters
from penstock.errors import DamagedError, RowError

# A statement of many rows is half as fast again as many of one; more rows than these gain nothing.
ROWS_PER_STATEMENT = 1_000
# SQLite's own limit, unless it was built with a higher one.
MOST_PARAMETERS = 32_766
# How many rows are Python objects at the same time.
ROWS_AT_A_TIME = 65_536

AddNullKeys = Callable[[StoredView], StoredView]


def write_changes(
    connection: sqlite3.Connection, view: StoredView, changes: Iterable[Changes], *, add_null_keys: AddNullKeys
) -> None:
    """Apply the changes of one epoch. `add_null_keys` makes the second table when the first null comes."""
    rows, weights = _together(view, changes)
    if rows.num_rows == 0:
        return
    if view.table.key is None:
        _write_bag(connection, view, rows, weights)
    elif not view.key:
        _write_single(connection, view, rows, weights)
    else:
        _write_keyed(connection, view, rows, weights, add_null_keys)


def _together(view: StoredView, changes: Iterable[Changes]) -> tuple[pa.Table, Numbers]:
    """All changes as one table of the view's columns, and their weights; without those of weight 0."""
    schema = view.table.schema
    batches, weights = [], [np.zeros(0, np.int64)]
    for one in changes:
        batches.append(_fitted(one.rows, view))
        weights.append(_checked_weights(one, view))
    table, all_weights = pa.Table.from_batches(batches, schema), np.concatenate(weights)
    if all_weights.all():
        return table, all_weights
    return table.filter(pa.array(all_weights != 0)), all_weights[all_weights != 0]


def _fitted(rows: pa.RecordBatch, view: StoredView) -> pa.RecordBatch:
    schema = pa.schema([field.with_nullable(True) for field in view.table.schema])
    if sorted(rows.schema.names) != sorted(schema.names):
        raise RowError(
            f"view '{view.name}': changes need the columns {', '.join(schema.names)}; "
            f"found {', '.join(rows.schema.names)}"
        )
    try:
        fitted = rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RowError(f"view '{view.name}': the changes do not fit its columns; {error}") from error
    return pa.RecordBatch.from_arrays(fitted.columns, schema=view.table.schema)


def _checked_weights(changes: Changes, view: StoredView) -> Numbers:
    weights = changes.weights
    if len(weights) != changes.rows.num_rows or weights.null_count or not pa.types.is_int64(weights.type):
        raise RowError(
            f"view '{view.name}': each row needs a weight, an int64 that is not null; found {len(weights)} of "
            f"{weights.type} with {weights.null_count} nulls for {changes.rows.num_rows} rows"
        )
    return values_of(weights)


# -- views with a key -------------------------------------------------------------------------------------------------


def _write_keyed(
    connection: sqlite3.Connection, view: StoredView, rows: pa.Table, weights: Numbers, add_null_keys: AddNullKeys
) -> None:
    keys = [rows.column(column).combine_chunks() for column in view.key]
    deleted, replaced = last_per_key(keys, weights)
    null_keys = np.zeros(rows.num_rows, np.bool_)
    for key in keys:
        if key.null_count:
            null_keys |= nulls_of(key)
    if null_keys.any() and not view.null_keys:
        view = add_null_keys(view)
    _delete(connection, view, rows, deleted[~null_keys[deleted]], null_keys=False)
    _replace(connection, view, rows, replaced[~null_keys[replaced]], null_keys=False)
    if view.null_keys:
        _delete(connection, view, rows, deleted[null_keys[deleted]], null_keys=True)
        _replace(connection, view, rows, replaced[null_keys[replaced]], null_keys=True)


def _delete(
    connection: sqlite3.Connection, view: StoredView, rows: pa.Table, chosen: Numbers, *, null_keys: bool
) -> None:
    table = view.null_keys_table if null_keys else view.rows_table
    statement = layout.delete_keys(table, view.key)
    for part in _parts(rows.select(list(view.key)), chosen):
        connection.executemany(statement, zip(*_columns(view, part, null_keys=null_keys), strict=True))


def _replace(
    connection: sqlite3.Connection, view: StoredView, rows: pa.Table, chosen: Numbers, *, null_keys: bool
) -> None:
    table = view.null_keys_table if null_keys else view.rows_table
    for part in _parts(rows, chosen):
        _insert(connection, table, view, _columns(view, part, null_keys=null_keys), replace=True)


def _write_single(connection: sqlite3.Connection, view: StoredView, rows: pa.Table, weights: Numbers) -> None:
    """A view of at most one row."""
    connection.execute(f"DELETE FROM {view.rows_table}")
    added = np.flatnonzero(weights > 0)[-1:]
    for part in _parts(rows, added):
        _insert(connection, view.rows_table, view, _columns(view, part), replace=False)


# -- views without a key ----------------------------------------------------------------------------------------------


def _write_bag(connection: sqlite3.Connection, view: StoredView, rows: pa.Table, weights: Numbers) -> None:
    added = np.flatnonzero(weights > 0)
    for part in _parts(rows, np.repeat(added, weights[added])):
        _insert(connection, view.rows_table, view, _columns(view, part), replace=False)
    gone = np.flatnonzero(weights < 0)
    if len(gone) == 0:
        return
    # Only views of which rows are taken away need to find them.
    connection.execute(layout.create_bag_index(view))
    statement, counts, deleted = layout.delete_equal_rows(view), (-weights[gone]).tolist(), 0
    for start in range(0, len(gone), ROWS_AT_A_TIME):
        (part,) = _parts(rows, gone[start : start + ROWS_AT_A_TIME])
        limits = counts[start : start + ROWS_AT_A_TIME]
        deleted += connection.executemany(statement, zip(*_columns(view, part), limits, strict=True)).rowcount
    if deleted != sum(counts):
        raise DamagedError(
            f"view '{view.name}': {sum(counts)} rows are to be taken away, and only {deleted} of them are there",
            hint="the view is not what its changes add up to; build it again from the log",
        )


# -- rows to parameters -----------------------------------------------------------------------------------------------


def _parts(rows: pa.Table, chosen: Numbers) -> Iterable[pa.Table]:
    """The chosen rows in their order, a limited number at a time."""
    for start in range(0, len(chosen), ROWS_AT_A_TIME):
        yield rows.take(chosen[start : start + ROWS_AT_A_TIME])


def _columns(view: StoredView, part: pa.Table, *, null_keys: bool = False) -> list[list[object]]:
    return [
        parameters(
            part.column(name).combine_chunks(),
            in_key=name in view.key,
            null=view.null_of(name) if null_keys and name in view.key else None,
        )
        for name in part.column_names
    ]


def _insert(
    connection: sqlite3.Connection, table: str, view: StoredView, columns: list[list[object]], *, replace: bool
) -> None:
    """Many rows in a statement; its parameters are all their values, one row after the other."""
    width, names = len(columns), tuple(view.columns)
    values: list[object] = [None] * (width * len(columns[0]))
    for number, column in enumerate(columns):
        values[number::width] = column
    many = max(1, min(ROWS_PER_STATEMENT, MOST_PARAMETERS // width))
    whole = len(columns[0]) // many * many * width
    statement = layout.insert_rows(table, names, many, replace=replace)
    for start in range(0, whole, many * width):
        connection.execute(statement, values[start : start + many * width])
    rest = iter(values[whole:])
    connection.executemany(layout.insert_rows(table, names, 1, replace=replace), zip(*[rest] * width, strict=True))
