"""Rows on their way out of a topic: which ones, in which order, and as which line."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cli.keys import key_batch, parse_key, partition_of_key
from penstock.cli.output import far_time, instant, plain, shown
from penstock.log import Batch, Topic

# How much further back every next look for the last rows goes.
LOOK_BACK_FACTOR = 8


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row and where it stands."""

    partition: int
    offset: int
    append_time: int
    deleted: bool
    version: int | None
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows and columns are wanted."""

    partitions: frozenset[int]
    columns: list[str]
    key: pa.RecordBatch | None

    @classmethod
    def of(cls, topic: Topic, *, key: list[str], partition: int | None, columns: str | None) -> Chosen:
        """What the options of a command mean for a topic."""
        numbers = frozenset(range(topic.settings.partitions))
        if partition is not None:
            topic.positions("end", partitions=[partition])  # refuses a partition that does not exist
            numbers = frozenset({partition})
        wanted = key_batch(topic, parse_key(topic, key)) if key else None
        if wanted is not None:
            numbers &= {partition_of_key(topic, wanted)}
        names = [name.strip() for name in columns.split(",")] if columns else topic.schema.names
        return cls(numbers, names, wanted)

    @property
    def read_columns(self) -> list[str]:
        """The columns to read: those to show, and those to choose by."""
        return list(dict.fromkeys([*self.columns, *(self.key.schema.names if self.key else [])]))

    def rows_of(self, batch: Batch) -> Iterator[ShownRow]:
        """The wanted rows of a batch."""
        indices = self._indices(batch)
        rows = _values_of(batch.rows.select(self.columns).take(indices))
        for index, values in zip(indices.tolist(), rows, strict=True):
            yield ShownRow(
                batch.partition,
                int(batch.offsets[index]),
                batch.append_time,
                batch.deleted is not None and bool(batch.deleted[index].as_py()),
                None if batch.versions is None else batch.versions[index].as_py(),
                values,
            )

    def _indices(self, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        matches = np.ones(len(batch), dtype=np.bool_)
        if self.key is not None:
            for name, value in zip(self.key.schema.names, self.key.columns, strict=True):
                matches &= pc.equal(batch.rows.column(name), value[0]).to_numpy(zero_copy_only=False)
        return np.flatnonzero(matches)


def _values_of(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """The rows as Python values; times that Python cannot hold as text."""
    try:
        return rows.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        columns = [[_value_of(item) for item in column] for column in rows.columns]
        return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _value_of(item: pa.Scalar[pa.DataType]) -> object:
    try:
        return item.as_py(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        if isinstance(item, pa.TimestampScalar):
            count = int(item.cast(pa.int64()).as_py())
            return instant(count) if item.type.tz else far_time(count, "us")
        if isinstance(item, pa.Date32Scalar):
            return far_time(int(item.cast(pa.int32()).as_py()), "D")
        if isinstance(item, pa.MapScalar):
            return {_value_of(pair["key"]): _value_of(pair["value"]) for pair in item.values or ()}
        if isinstance(item, pa.ListScalar):
            return [_value_of(one) for one in item.values or ()]
        if isinstance(item, pa.StructScalar):
            return {name: _value_of(one) for name, one in item.items()}
        raise


def rows_between(
    topic: Topic, chosen: Chosen, starts: Mapping[int, int], ends: Mapping[int, int]
) -> Iterator[ShownRow]:
    """The wanted rows from `starts` up to `ends`, partitions merged by the time of their appends."""
    streams = [
        topic.batches({number: starts[number]}, until={number: end}, columns=chosen.read_columns)
        for number, end in ends.items()
    ]
    for batch in heapq.merge(*streams, key=lambda batch: batch.append_time):
        yield from chosen.rows_of(batch)


def last_rows(topic: Topic, chosen: Chosen, ends: Mapping[int, int], *, count: int) -> list[ShownRow]:
    """The last wanted rows before `ends`: a look at the end, and further back until there are enough of them."""
    firsts = topic.starts()
    span = count
    while True:
        starts = {number: max(firsts[number], end - span) for number, end in ends.items()}
        rows = list(rows_between(topic, chosen, starts, ends))
        complete = {number for number in ends if starts[number] == firsts[number]}
        found = {number: sum(row.partition == number for row in rows) for number in ends}
        if all(number in complete or found[number] >= count for number in ends):
            return rows[len(rows) - count :] if len(rows) > count else rows
        span *= LOOK_BACK_FACTOR


def json_line(row: ShownRow) -> str:
    """A row as one line of JSON."""
    version = {} if row.version is None else {"version": row.version}
    document = {
        "partition": row.partition,
        "offset": row.offset,
        "appended_at": instant(row.append_time),
        "deleted": row.deleted,
        **version,
        "row": plain(row.values),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def text_line(row: ShownRow) -> str:
    """A row as one line for people. Of a delete only what it has is shown, which is its key."""
    marks = ["deleted"] if row.deleted else []
    values = [f"{name}={shown(value)}" for name, value in row.values.items() if not (row.deleted and value is None)]
    return "  ".join([f"{row.partition}:{row.offset}", instant(row.append_time), " ".join([*marks, *values])])
