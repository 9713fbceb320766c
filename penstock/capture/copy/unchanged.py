"""Filling in what a database did not send because it did not change. Pure: columns in, columns out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.copy.keys import KeyValue, mark_array

Lookup = Callable[[Sequence[KeyValue]], "tuple[npt.NDArray[np.int64], pa.RecordBatch]"]
"""For keys, the number of the row that each has in a batch, or -1, and this batch."""

_Numbers = npt.NDArray[np.int64]


def fill_unchanged(
    rows: pa.RecordBatch,
    deleted: pa.BooleanArray | None,
    unchanged: Mapping[str, pa.BooleanArray],
    keys: Sequence[KeyValue],
    lookup: Lookup,
) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    """The rows with the value that their key had before in each unchanged cell, and which rows could not be filled.

    The value before is that of the last row of the same key above it that has one; if there is none, `lookup` knows it.
    """
    marks = np.zeros(rows.num_rows, bool) if deleted is None else mark_array(deleted)
    cells = {name: mark_array(mask) & ~marks for name, mask in unchanged.items()}
    order, first = _by_key(keys)
    origins = {name: _origins(mask, order, first) for name, mask in cells.items()}
    asked = np.zeros(rows.num_rows, bool)
    missing = np.zeros(rows.num_rows, bool)
    for name, origin in origins.items():
        asked |= cells[name] & (origin < 0)
        # A key that was deleted above has nothing to fill in.
        missing |= cells[name] & (origin >= 0) & marks[origin]
    numbers = np.full(rows.num_rows, -1, np.int64)
    places, before = lookup([keys[number] for number in np.flatnonzero(asked).tolist()])
    numbers[asked] = places
    missing |= asked & (numbers < 0)
    for name, origin in origins.items():
        rows = _with_column(rows, name, cells[name], origin, numbers, before)
    return rows, missing


def _by_key(keys: Sequence[KeyValue]) -> tuple[_Numbers, _Numbers]:
    """The order of rows by key, each key's in their order; and at each place of it, the place where its key begins."""
    values: pa.Array[pa.Scalar[pa.DataType]] = pa.array(keys)  # type: ignore[arg-type]
    numbers = values.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    ordered = numbers[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    return order, np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))


def _origins(mask: npt.NDArray[np.bool_], order: _Numbers, first: _Numbers) -> _Numbers:
    """For each row, the last row of its key up to it whose value was sent; -1 if there is none."""
    places = np.arange(len(order))
    last = np.maximum.accumulate(np.where(mask[order], -1, places))
    origins = np.full(len(order), -1, np.int64)
    origins[order] = np.where(last >= first, order[np.maximum(last, 0)], -1)
    return origins


def _with_column(
    rows: pa.RecordBatch,
    name: str,
    cells: npt.NDArray[np.bool_],
    origin: _Numbers,
    numbers: _Numbers,
    before: pa.RecordBatch,
) -> pa.RecordBatch:
    column = rows.column(name)
    both = pa.concat_arrays([column, before.column(name).cast(column.type)])
    own = np.arange(rows.num_rows)
    source = np.where(cells & (origin >= 0), origin, own)
    source = np.where(cells & (origin < 0) & (numbers >= 0), rows.num_rows + numbers, source)
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(name), both.take(source))
