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

from penstock.contracts import ViewChanges
from penstock.errors import RowError
from penstock.log import Log, Topic
from penstock.log.transaction import Transaction

Weights = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Where a sink writes. An epoch's rows are in the order of the column `time`, if there is one."""

    topic: Topic
    time: str | None = None


class TopicSinks:
    """The sinks of a running instance of an app, by name.

    The producer is theirs alone. Whoever opens it takes over: the log refuses those who had it before.
    """

    def __init__(self, log: Log, producer: str, sinks: Mapping[str, TopicSink]) -> None:
        self._log = log
        self._producer = log.producer(producer) if sinks else None
        self._sinks = sinks

    def __contains__(self, name: str) -> bool:
        return name in self._sinks

    def topic_id(self, name: str) -> str:
        return self._sinks[name].topic.description.id

    def last_epoch(self) -> int:
        """The last epoch that was written; 0 for none."""
        return 0 if self._producer is None else max(0, self._producer.last_transaction())

    def apply(self, epoch: int, changes: Mapping[str, Iterable[ViewChanges]]) -> bool:
        """Write the changes of an epoch: all of them with its number, or nothing.

        False: they were written before, or there are no sinks, and nothing is read.
        """
        if self._producer is None or epoch <= self.last_epoch():
            return False
        with self._log.transaction(self._producer, sequence=epoch) as transaction:
            for name, parts in changes.items():
                _write(transaction, name, self._sinks[name], list(parts))
        return True


def _write(transaction: Transaction, name: str, sink: TopicSink, changes: list[ViewChanges]) -> None:
    if not changes:
        return
    topic, key = sink.topic, list(sink.topic.settings.key)
    rows = pa.Table.from_batches([one.rows for one in changes])
    weights: Weights = np.concatenate([one.weights.to_numpy() for one in changes])
    _refuse_null_keys(name, rows, key)
    for part in _slices(_deleted(rows, weights, key), topic):
        transaction.append(topic, part, deleted=[True] * part.num_rows)
    for part in _slices(_added(rows, weights, sink.time), topic):
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
    """The rows in pieces that fit into a frame."""
    if not rows.num_rows:
        return
    fitting = topic.settings.max_batch_bytes // 2
    step = max(1, rows.num_rows * fitting // max(rows.nbytes, fitting))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
