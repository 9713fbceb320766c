"""Answers that are written to topics of the log as they change: an epoch in one transaction, once.

A stream's rows are appended. Of an answer with a key the newest row of each key is written, or a delete marker: whoever
reads the topic as a table has the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.contracts import Changes
from penstock.errors import RowError
from penstock.log import Log, Topic
from penstock.log.transaction import MOST_TRANSACTION_BYTES, Transaction

Weights = npt.NDArray[np.int64]
# With some room for what a transaction has beside the rows.
MOST_BYTES = MOST_TRANSACTION_BYTES // 4 * 3


class TooMuchError(RowError):
    """Cut the epoch smaller: its rows for sinks do not fit into one transaction. Nothing of them was stored."""


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Where a sink writes. An epoch's rows are in the order of the column `time`, if there is one."""

    topic: Topic
    time: str | None = None


class TopicSinks:
    """The sinks of a running instance of an app, by name.

    The producer is theirs alone. Whoever opens it takes over, also without any sinks: the log refuses those who had it
    before.
    """

    def __init__(self, log: Log, producer: str, sinks: Mapping[str, TopicSink]) -> None:
        self._log = log
        self._producer = log.producer(producer)
        self._sinks = sinks

    def __contains__(self, name: str) -> bool:
        return name in self._sinks

    def topic(self, name: str) -> Topic:
        return self._sinks[name].topic

    def last_epoch(self) -> int:
        """The last epoch that was written; 0 for none."""
        return max(0, self._producer.last_transaction())

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]]) -> bool:
        """Write the changes of an epoch: all of them with its number, or nothing.

        False: they were written before, or there are no sinks, and nothing is read. TooMuchError: they do not fit into
        one transaction.
        """
        if not self._sinks or epoch <= self.last_epoch():
            return False
        written = {name: _rows(name, self._sinks[name], list(parts)) for name, parts in changes.items()}
        size = sum(rows.nbytes for both in written.values() for rows in both)
        if size > MOST_BYTES:
            raise TooMuchError(
                f"sinks {', '.join(written)}: the rows of epoch {epoch} have {size} bytes; {MOST_BYTES} are allowed",
                hint="write fewer columns, or fewer rows",
            )
        with self._log.transaction(self._producer, sequence=epoch) as transaction:
            for name, (deleted, added) in written.items():
                _append(transaction, self._sinks[name].topic, deleted, added)
        return True


def _rows(name: str, sink: TopicSink, changes: list[Changes]) -> tuple[pa.Table, pa.Table]:
    """The keys that are to be deleted, and the rows that are to be appended."""
    if not changes:
        return sink.topic.schema.empty_table(), sink.topic.schema.empty_table()
    key = list(sink.topic.settings.key)
    rows = pa.Table.from_batches([one.rows for one in changes])
    weights: Weights = np.concatenate([one.weights.to_numpy() for one in changes])
    _refuse_null_keys(name, rows, key)
    return _deleted(rows, weights, key), _added(rows, weights, sink.time)


def _append(transaction: Transaction, topic: Topic, deleted: pa.Table, added: pa.Table) -> None:
    for part in _slices(deleted, topic):
        transaction.append(topic, part, deleted=[True] * part.num_rows)
    for part in _slices(added, topic):
        transaction.append(topic, part)


def _refuse_null_keys(name: str, rows: pa.Table, key: list[str]) -> None:
    for column in key:
        if rows.column(column).null_count:
            raise RowError(
                f"sink '{name}': a row has no '{column}', which is part of the key, and a topic cannot hold it",
                hint=f'leave such rows out before the sink: .where("{column} is not null")',
            )


def _added(rows: pa.Table, weights: Weights, time: str | None) -> pa.Table:
    """The rows that have come, each as often as its weight says."""
    added = rows.take(np.repeat(np.arange(len(weights)), np.maximum(weights, 0)))
    return added if time is None else added.sort_by(time)


def _deleted(rows: pa.Table, weights: Weights, key: list[str]) -> pa.Table:
    """The keys whose row has gone, and no other has taken its place."""
    if not (weights < 0).any():
        return rows.slice(0, 0)
    assert key, "a topic without a key cannot take rows back"
    gone, come = (rows.filter(pa.array(chosen)).select(key) for chosen in (weights < 0, weights > 0))
    return gone.join(come, keys=key, join_type="left anti")


def _slices(rows: pa.Table, topic: Topic) -> Iterator[pa.Table]:
    """The rows in pieces that fit into a frame, whichever of them are the large ones."""
    if rows.num_rows <= 1 or rows.nbytes <= topic.settings.max_batch_bytes // 2:
        yield from [rows] if rows.num_rows else []
        return
    middle = rows.num_rows // 2
    yield from _slices(rows.slice(0, middle), topic)
    yield from _slices(rows.slice(middle), topic)
