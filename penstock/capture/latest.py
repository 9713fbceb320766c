"""The latest row of each key of a topic: as digests for topics of any size, or as rows where they are few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.copy.keys import key_values, mark_array
from penstock.capture.digests import row_digests
from penstock.contracts import Batch, Topic
from penstock.schema.arrow import conform

_MEMORY = "512MB"
_AT_ONCE = 100_000
_SCHEMA = pa.schema([("key", pa.uint64()), ("place", pa.int64()), ("digest", pa.uint64())])

_MOST_GATHERED = 1000

Digests = npt.NDArray[np.uint64]
_Events = tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.bool_]]


def latest_digests(topic: Topic, columns: Sequence[str], *, scratch: Path) -> Iterator[tuple[Digests, Digests]]:
    """The digests of all keys that are alive, and of the rows that they have, many at a time.

    Memory is bounded: what does not fit is kept in the folder `scratch`.
    """
    import duckdb

    connection = duckdb.connect(config={"temp_directory": str(scratch), "memory_limit": _MEMORY, "threads": 2})
    try:
        connection.register("events", pa.RecordBatchReader.from_batches(_SCHEMA, _events(topic, columns)))
        # An odd place is that of a delete.
        found = connection.sql(
            "select key, arg_max(digest, place) as digest from events group by key having max(place) % 2 = 0"
        )
        for batch in found.to_arrow_reader(_AT_ONCE):
            yield _words(batch.column("key")), _words(batch.column("digest"))
    finally:
        connection.close()


def _events(topic: Topic, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for rows, offsets, marks in _large_batches(topic, columns):
        keys = row_digests(rows, topic.settings.key)
        digests = row_digests(rows, columns)
        places = offsets * 2 + marks
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(places), pa.array(digests)], schema=_SCHEMA)


def latest_rows(
    topic: Topic, columns: Sequence[str], choose: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]
) -> Iterator[pa.RecordBatch]:
    """The latest rows of those keys that `choose` takes, which should be few."""
    found: dict[object, pa.RecordBatch | None] = {}
    for given, _, given_marks in _large_batches(topic, columns):
        numbers = np.flatnonzero(choose(given))
        if not len(numbers):
            continue
        rows, marks = given.take(numbers), given_marks[numbers]
        for number, key in enumerate(key_values(rows, topic.settings.key)):
            found[key] = None if marks[number] else rows.slice(number, 1)
    yield from (row for row in found.values() if row is not None)


def _large_batches(topic: Topic, columns: Sequence[str]) -> Iterator[_Events]:
    """All events. Many small transactions have many small batches, each of which would cost as much as a large one."""
    gathered: list[Batch] = []
    rows = 0
    for batch in topic.batches(columns=_with_key(topic, columns)):
        gathered.append(batch)
        rows += len(batch)
        if rows >= _AT_ONCE or len(gathered) >= _MOST_GATHERED:
            yield _joined(gathered)
            gathered, rows = [], 0
    if gathered:
        yield _joined(gathered)


def _joined(batches: Sequence[Batch]) -> _Events:
    schema = batches[-1].rows.schema
    rows = pa.Table.from_batches([conform(batch.rows, schema) for batch in batches]).combine_chunks().to_batches()[0]
    marks = np.concatenate([_marks(batch) for batch in batches])
    return rows, np.concatenate([batch.offsets for batch in batches]), marks


def _with_key(topic: Topic, columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*topic.settings.key, *columns]))


def _marks(batch: Batch) -> npt.NDArray[np.bool_]:
    return np.zeros(len(batch), bool) if batch.deleted is None else mark_array(batch.deleted)


def _words(column: pa.Array[pa.Scalar[pa.DataType]]) -> Digests:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.uint64)
