"""Fetching columns from the log for rows that come from Spark with their place in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.contracts import Batch
from penstock.engine.datasource.topic import TopicRef, cached_topic
from penstock.engine.operators.contract import OFFSET, PARTITION
from penstock.engine.run.tasks import MapInArrow, assignment, state_partition
from penstock.errors import DamagedError


def with_fetched(topic: str, columns: Mapping[str, str], write: MapInArrow) -> MapInArrow:
    """`write` over rows to which these columns were added; the values say which column of the topic each one is.

    The rows of a task are those of its share of the epoch, in the order in which they are in the log, perhaps without
    some of them: so both are walked through once, side by side.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from write(_add_columns(topic, columns, batches))

    return run


def _add_columns(topic: str, columns: Mapping[str, str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = list(dict.fromkeys(columns.values()))
    stored = _Walk(topic, names)
    for batch in batches:
        if batch.num_rows:
            rows = stored.rows_at(batch.column(PARTITION).to_numpy(), batch.column(OFFSET).to_numpy())
            whole = batch.drop_columns([PARTITION, OFFSET])
            for name, source in columns.items():
                whole = whole.append_column(name, rows.column(source))
            yield whole


class _Walk:
    """The stored rows of this task's share of the epoch, from the first to the last."""

    def __init__(self, topic: str, names: list[str]) -> None:
        epoch = assignment()
        given = epoch.sources[topic]
        self._topic = topic
        self._batches = _stored_batches(given, state_partition(epoch.partitions), names)
        self._batch: Batch | None = None

    def rows_at(self, partitions: np.ndarray, offsets: np.ndarray) -> pa.RecordBatch:
        """The rows at these places, which all come after those that were asked for before."""
        pieces = []
        ends = [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(offsets)]
        start = 0
        for end in ends:
            partition = int(partitions[start])
            while start < end:
                batch = self._batch_with(partition, int(offsets[start]))
                stop = start + int(np.searchsorted(offsets[start:end], batch.offsets[-1], side="right"))
                pieces.append(_taken(batch, offsets[start:stop]))
                start = stop
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)  # type: ignore[attr-defined]

    def _batch_with(self, partition: int, offset: int) -> Batch:
        while self._batch is None or self._batch.partition != partition or self._batch.next_offset <= offset:
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise DamagedError(
                    f"topic '{self._topic}', partition {partition}: offset {offset} was read, and is no longer there",
                    hint="check the log: penstock verify",
                )
        return self._batch


def _stored_batches(given: Mapping[str, object], task: int, names: list[str]) -> Iterator[Batch]:
    ref, tasks = given["topic"], given["tasks"]
    assert isinstance(ref, Mapping) and isinstance(tasks, list)
    topic = cached_topic(TopicRef(**ref))
    for partition, start, end in tasks[task]:
        yield from topic.batches({partition: start}, until={partition: end}, columns=names)


def _taken(batch: Batch, offsets: np.ndarray) -> pa.RecordBatch:
    """The rows of a batch at these offsets."""
    at = np.searchsorted(batch.offsets, offsets)
    if not np.array_equal(batch.offsets[at], offsets):
        raise DamagedError(
            f"partition {batch.partition}: rows between offsets {offsets[0]} and {offsets[-1]} are no longer there",
            hint="check the log: penstock verify",
        )
    if at[-1] - at[0] + 1 == len(at):
        return batch.rows.slice(int(at[0]), len(at))
    return batch.rows.take(at)
