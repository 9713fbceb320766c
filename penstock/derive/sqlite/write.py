"""Writes the changes of an epoch to a table, with few and large statements.

With a key, all changes are sorted by key, so that each page is written once and in order; each key comes down to one
replacement or one delete. Without a key, rows are added first and then removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from penstock.contracts import Changes
from penstock.derive.sqlite import layout
from penstock.derive.sqlite.columns import Numbers, null_mask, values_of
from penstock.derive.sqlite.layout import StoredTable
from penstock.derive.sqlite.parameters import column_parameters
from penstock.derive.sqlite.sorting import last_per_key
from penstock.errors import DamagedError, RowError

# Statements with many rows are 50% faster than statements with one; more rows than this gain nothing.
ROWS_PER_STATEMENT = 1_000
# SQLite's default limit; a build may allow more.
MOST_PARAMETERS = 32_766
# How many rows are held as Python objects at a time.
ROWS_AT_A_TIME = 65_536

CreateNullKeysTable = Callable[[StoredTable], StoredTable]


def write_changes(
    connection: sqlite3.Connection,
    stored: StoredTable,
    changes: Iterable[Changes],
    *,
    create_null_keys_table: CreateNullKeysTable,
) -> None:
    """Apply the changes of one epoch. `create_null_keys_table` is called when the first null in a key comes."""
    rows, weights = _concatenate(stored, changes)
    if rows.num_rows == 0:
        return
    if stored.table.key is None:
        _write_bag(connection, stored, rows, weights)
    elif not stored.key:
        _write_single(connection, stored, rows, weights)
    else:
        _write_keyed(connection, stored, rows, weights, create_null_keys_table)


def _concatenate(stored: StoredTable, changes: Iterable[Changes]) -> tuple[pa.Table, Numbers]:
    """All changes as one Arrow table with the columns of the stored one, and their weights; without weights of 0."""
    schema = stored.table.schema
    batches, weights = [], [np.zeros(0, np.int64)]
    for batch in changes:
        batches.append(_fitted_rows(batch.rows, stored))
        weights.append(_checked_weights(batch, stored))
    table, all_weights = pa.Table.from_batches(batches, schema), np.concatenate(weights)
    if all_weights.all():
        return table, all_weights
    return table.filter(pa.array(all_weights != 0)), all_weights[all_weights != 0]


def _fitted_rows(rows: pa.RecordBatch, stored: StoredTable) -> pa.RecordBatch:
    schema = pa.schema([field.with_nullable(True) for field in stored.table.schema])
    if sorted(rows.schema.names) != sorted(schema.names):
        raise RowError(
            f"view '{stored.name}': changes need the columns {', '.join(schema.names)}; "
            f"found {', '.join(rows.schema.names)}"
        )
    try:
        fitted = rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RowError(f"view '{stored.name}': the changes do not fit its columns; {error}") from error
    return pa.RecordBatch.from_arrays(fitted.columns, schema=stored.table.schema)


def _checked_weights(changes: Changes, stored: StoredTable) -> Numbers:
    weights = changes.weights
    if len(weights) != changes.rows.num_rows or weights.null_count or not pa.types.is_int64(weights.type):
        raise RowError(
            f"view '{stored.name}': each row needs a weight, an int64 that is not null; found {len(weights)} of "
            f"{weights.type} with {weights.null_count} nulls for {changes.rows.num_rows} rows"
        )
    return values_of(weights)


# -- tables with a key ------------------------------------------------------------------------------------------------


def _write_keyed(
    connection: sqlite3.Connection,
    stored: StoredTable,
    rows: pa.Table,
    weights: Numbers,
    create_null_keys_table: CreateNullKeysTable,
) -> None:
    keys = [rows.column(column).combine_chunks() for column in stored.key]
    deleted, replaced = last_per_key(keys, weights)
    null_keys = np.zeros(rows.num_rows, np.bool_)
    for key in keys:
        if key.null_count:
            null_keys |= null_mask(key)
    if null_keys.any() and not stored.null_keys:
        stored = create_null_keys_table(stored)
    _delete(connection, stored, rows, deleted[~null_keys[deleted]], null_keys=False)
    _replace(connection, stored, rows, replaced[~null_keys[replaced]], null_keys=False)
    if stored.null_keys:
        _delete(connection, stored, rows, deleted[null_keys[deleted]], null_keys=True)
        _replace(connection, stored, rows, replaced[null_keys[replaced]], null_keys=True)


def _delete(
    connection: sqlite3.Connection, stored: StoredTable, rows: pa.Table, chosen: Numbers, *, null_keys: bool
) -> None:
    table = stored.null_keys_table if null_keys else stored.rows_table
    statement = layout.delete_keys(table, stored.key)
    for part in _slices(rows.select(list(stored.key)), chosen):
        connection.executemany(statement, zip(*_parameter_columns(stored, part, null_keys=null_keys), strict=True))


def _replace(
    connection: sqlite3.Connection, stored: StoredTable, rows: pa.Table, chosen: Numbers, *, null_keys: bool
) -> None:
    table = stored.null_keys_table if null_keys else stored.rows_table
    for part in _slices(rows, chosen):
        _insert(connection, table, stored, _parameter_columns(stored, part, null_keys=null_keys), replace=True)


def _write_single(connection: sqlite3.Connection, stored: StoredTable, rows: pa.Table, weights: Numbers) -> None:
    """Write a table of at most one row."""
    connection.execute(f"DELETE FROM {stored.rows_table}")
    added = np.flatnonzero(weights > 0)[-1:]
    for part in _slices(rows, added):
        _insert(connection, stored.rows_table, stored, _parameter_columns(stored, part), replace=False)


# -- tables without a key ---------------------------------------------------------------------------------------------


def _write_bag(connection: sqlite3.Connection, stored: StoredTable, rows: pa.Table, weights: Numbers) -> None:
    added = np.flatnonzero(weights > 0)
    for part in _slices(rows, np.repeat(added, weights[added])):
        _insert(connection, stored.rows_table, stored, _parameter_columns(stored, part), replace=False)
    removed = np.flatnonzero(weights < 0)
    if len(removed) == 0:
        return
    # Only tables from which rows are removed need to find them.
    connection.execute(layout.create_bag_index(stored))
    statement, counts, deleted = layout.delete_equal_rows(stored), (-weights[removed]).tolist(), 0
    for start in range(0, len(removed), ROWS_AT_A_TIME):
        (part,) = _slices(rows, removed[start : start + ROWS_AT_A_TIME])
        limits = counts[start : start + ROWS_AT_A_TIME]
        deleted += connection.executemany(
            statement, zip(*_parameter_columns(stored, part), limits, strict=True)
        ).rowcount
    if deleted != sum(counts):
        raise DamagedError(
            f"view '{stored.name}': {sum(counts)} rows are to be removed, and only {deleted} of them are there",
            hint="the view is not what its changes add up to; build it again from the log",
        )


# -- rows to parameters -----------------------------------------------------------------------------------------------


def _slices(rows: pa.Table, chosen: Numbers) -> Iterable[pa.Table]:
    """The chosen rows in order, a limited number at a time."""
    for start in range(0, len(chosen), ROWS_AT_A_TIME):
        yield rows.take(chosen[start : start + ROWS_AT_A_TIME])


def _parameter_columns(stored: StoredTable, part: pa.Table, *, null_keys: bool = False) -> list[list[object]]:
    return [
        column_parameters(
            part.column(name).combine_chunks(),
            in_key=name in stored.key,
            null=stored.null_of(name) if null_keys and name in stored.key else None,
        )
        for name in part.column_names
    ]


def _insert(
    connection: sqlite3.Connection, table: str, stored: StoredTable, columns: list[list[object]], *, replace: bool
) -> None:
    """Insert many rows per statement. Its parameters are the values of all rows, row by row."""
    width, names = len(columns), tuple(stored.columns)
    values: list[object] = [None] * (width * len(columns[0]))
    for number, column in enumerate(columns):
        values[number::width] = column
    many = max(1, min(ROWS_PER_STATEMENT, MOST_PARAMETERS // width))
    whole = len(columns[0]) // many * many * width
    statement = layout.insert_rows(table, names, many, replace=replace)
    for start in range(0, whole, many * width):
        connection.execute(statement, values[start : start + many * width])
    remaining = iter(values[whole:])
    connection.executemany(layout.insert_rows(table, names, 1, replace=replace), zip(*[remaining] * width, strict=True))
