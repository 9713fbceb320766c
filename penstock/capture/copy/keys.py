"""Keys of copied rows: as values to look up, and which of them are alive, over topics of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.contracts import Offsets, Topic
from penstock.names import quoted_name

if TYPE_CHECKING:
    import duckdb

KeyValue: TypeAlias = "int | str"
_Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"

# Of each event of a key, its place in the order, and below that two flags, so that one maximum finds the last event
# and what it was. DuckDB can move groups with such a state to disk.
_PLACE, _IS_DELETE, _IS_EARLY = "_place", 1, 2
_UNWRITTEN = 1 << 60
_KEYS_AT_ONCE = 50_000
_MEMORY = "512MB"


class OpenRows(Protocol):
    """Rows that follow those of the topic and are not written yet, with their delete marks."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, pa.BooleanArray | None]]: ...


def key_values(batch: pa.RecordBatch, key: Sequence[str]) -> list[KeyValue]:
    """The key of each row as one value, which is equal exactly for equal keys."""
    columns = [batch.column(name) for name in key]
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        return _values(columns[0])
    texts = [_texts(column) for column in columns]
    if len(texts) == 1:
        return _values(texts[0])
    # With its length before it, no text runs into the next one.
    parts = [part for text in texts for part in (pc.cast(pc.utf8_length(text), pa.string()), text)]
    return _values(pc.binary_join_element_wise(*parts, ":"))  # type: ignore[call-overload]


def _values(column: _Column) -> list[KeyValue]:
    return cast("list[KeyValue]", column.to_pylist())  # type: ignore[misc]


def _texts(column: _Column) -> pa.StringArray:
    if pa.types.is_binary(column.type):
        values = cast("list[bytes]", column.to_pylist())  # type: ignore[misc]
        return pa.array([value.hex() for value in values], pa.string())
    return cast(pa.StringArray, column.cast(pa.string()))


def live_keys(
    topic: Topic, *, open_rows: OpenRows | None = None, before: Offsets | None = None, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """The keys whose last event is a row, not a delete: of the topic as it ends now, and `open_rows` after it.

    With `before`, only those whose last event is before these offsets. Memory is bounded: what does not fit is kept in
    the folder `scratch` meanwhile.
    """
    import duckdb

    fields = [topic.schema.field(name) for name in topic.settings.key]
    schema = pa.schema([*fields, pa.field(_PLACE, pa.int64())])
    events = pa.RecordBatchReader.from_batches(schema, _events(topic, open_rows, before))
    scratch.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect(config={"temp_directory": str(scratch), "memory_limit": _MEMORY, "threads": 2})
    try:
        connection.register("events", events)
        yield from _select_live(connection, topic.settings.key, early=before is not None, schema=pa.schema(fields))
    finally:
        connection.close()


def _select_live(
    connection: duckdb.DuckDBPyConnection, key: Sequence[str], *, early: bool, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    names = ", ".join(map(quoted_name, key))
    condition = f"max({_PLACE}) & {_IS_DELETE} = 0" + (f" and max({_PLACE}) & {_IS_EARLY} <> 0" if early else "")
    found = connection.sql(f"select {names} from events group by {names} having {condition}")
    for batch in found.to_arrow_reader(_KEYS_AT_ONCE):
        columns = [batch.column(name).cast(schema.field(name).type) for name in key]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _events(topic: Topic, open_rows: OpenRows | None, before: Offsets | None) -> Iterator[pa.RecordBatch]:
    key = topic.settings.key
    for batch in topic.batches(columns=list(key)):
        early = batch.offsets < (0 if before is None else before.get(batch.partition, 0))
        yield _event_batch(batch.rows, key, batch.deleted, batch.offsets, early)
    place = _UNWRITTEN
    for rows, deleted in open_rows or ():
        yield _event_batch(rows, key, deleted, np.arange(place, place + rows.num_rows), np.zeros(rows.num_rows, bool))
        place += rows.num_rows


def _event_batch(
    rows: pa.RecordBatch,
    key: Sequence[str],
    deleted: _Column | None,
    places: np.ndarray[tuple[int], np.dtype[np.int64]],
    early: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> pa.RecordBatch:
    marks = np.zeros(rows.num_rows, bool) if deleted is None else mark_array(deleted)
    states = places * 4 + marks * _IS_DELETE + early * _IS_EARLY
    columns = [rows.column(name) for name in key]
    fields = [rows.schema.field(name) for name in key]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(states)], schema=pa.schema([*fields, pa.field(_PLACE, pa.int64())])
    )


def mark_array(marks: Iterable[bool] | _Column) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Delete marks as an array of numpy."""
    array = marks if isinstance(marks, pa.Array) else pa.array(marks, pa.bool_())
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)
