"""The rows that `tail` shows: which ones, in which order, and as which line of text."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cli.keys import key_batch, parse_key, partition_of_key
from penstock.cli.output import instant_text, json_value, value_text
from penstock.log import Batch, Topic
from penstock.schema.to_python import python_values

# The factor by which each further search for the last rows looks back.
LOOK_BACK_FACTOR = 8


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row and its position."""

    partition: int
    offset: int
    append_time: int
    deleted: bool
    version: int | None
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows and columns to show."""

    partitions: frozenset[int]
    columns: list[str]
    key: pa.RecordBatch | None

    @classmethod
    def from_options(cls, topic: Topic, *, key: list[str], partition: int | None, columns: str | None) -> RowSelection:
        """Read the options of a command for a topic."""
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
        """The columns to read: those to show and those of the key."""
        return list(dict.fromkeys([*self.columns, *(self.key.schema.names if self.key else [])]))

    def rows_of(self, batch: Batch) -> Iterator[ShownRow]:
        """The selected rows of a batch."""
        indices = self._indices(batch)
        wanted = batch.rows.select(self.columns).take(indices)
        columns = [python_values(column, maps="lossy") for column in wanted.columns]
        for index, *values in zip(indices.tolist(), *columns, strict=True):
            yield ShownRow(
                batch.partition,
                int(batch.offsets[index]),
                batch.append_time,
                batch.deleted is not None and bool(batch.deleted[index].as_py()),
                None if batch.versions is None else batch.versions[index].as_py(),
                dict(zip(self.columns, values, strict=True)),
            )

    def _indices(self, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        matches = np.ones(len(batch), dtype=np.bool_)
        if self.key is not None:
            for name, value in zip(self.key.schema.names, self.key.columns, strict=True):
                matches &= pc.equal(batch.rows.column(name), value[0]).to_numpy(zero_copy_only=False)
        return np.flatnonzero(matches)


def rows_between(
    topic: Topic, selection: RowSelection, starts: Mapping[int, int], ends: Mapping[int, int]
) -> Iterator[ShownRow]:
    """The selected rows from `starts` to `ends`. Partitions are merged by append time."""
    streams = [
        topic.batches({number: starts[number]}, until={number: end}, columns=selection.read_columns)
        for number, end in ends.items()
    ]
    for batch in heapq.merge(*streams, key=lambda batch: batch.append_time):
        yield from selection.rows_of(batch)


def last_rows(topic: Topic, selection: RowSelection, ends: Mapping[int, int], *, count: int) -> list[ShownRow]:
    """The last selected rows before `ends`. The search starts at the end and goes further back until it has enough."""
    first_offsets = topic.starts()
    span = count
    while True:
        starts = {number: max(first_offsets[number], end - span) for number, end in ends.items()}
        rows = list(rows_between(topic, selection, starts, ends))
        complete = {number for number in ends if starts[number] == first_offsets[number]}
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
        "appended_at": instant_text(row.append_time),
        "deleted": row.deleted,
        **version,
        "row": json_value(row.values),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def text_line(row: ShownRow) -> str:
    """A row as one line for people. A delete marker shows only its key."""
    marks = ["deleted"] if row.deleted else []
    values = [
        f"{name}={value_text(value)}" for name, value in row.values.items() if not (row.deleted and value is None)
    ]
    return "  ".join([f"{row.partition}:{row.offset}", instant_text(row.append_time), " ".join([*marks, *values])])
