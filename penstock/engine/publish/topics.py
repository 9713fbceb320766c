"""Topics of the log as a target: the sinks of an app that write topics, an epoch in one transaction, once.

A stream's rows are appended. Of an answer with a key the newest row of each key is written, or a delete marker: whoever
reads the topic as a table has the answer. Topics are made when they are missing, and refused when their columns are not
what a sink needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.contracts import Changes, Destination
from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.errors import DeclarationError, FencedError, RowError, TooMuchError
from penstock.flow import plan as flow
from penstock.log import Log, Topic, TopicSettings
from penstock.log.ddl import to_ddl
from penstock.log.description import check_topic
from penstock.log.producer import Producer
from penstock.log.schema import parse_schema
from penstock.log.transaction import MOST_TRANSACTION_BYTES, Transaction

Schemas = Mapping[str, pa.Schema]
Weights = npt.NDArray[np.int64]
# With some room for what a transaction has beside the rows.
MOST_BYTES = MOST_TRANSACTION_BYTES // 4 * 3


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Where a sink writes: a topic, and how it is made. An epoch's rows are in the order of the column `time`."""

    topic: str
    schema: pa.Schema
    settings: TopicSettings
    time: str | None = None


class TopicTarget:
    """A `Target` that `CannotTakeBack` and `LimitsEpochs`: the topics of an app's sinks, by the names of the sinks.

    `owner` is the producer whose epochs are the app's tokens. The sinks have a producer of their own, called
    `producer`, whose sequences are the app's epochs. Whoever opens it takes over, also without any sinks: the log
    refuses those who had it before.
    """

    def __init__(self, log: Log, owner: Producer, producer: str, sinks: Mapping[str, TopicSink]) -> None:
        self._log = log
        self._owner = owner
        self._name = producer
        self._producer: Producer | None = None
        self._sinks = sinks
        self._topics: dict[str, Topic] = {}  # of sinks that are prepared

    def take_over(self, app: str, token: int) -> int:
        """Be the instance that writes; the last epoch written, 0 for none. See `Target`.

        The log gives each token once, and while its newest holder is here nobody can get a higher one.
        """
        check_token(self._owner, app, token)
        with self._owner.current():
            self._producer = self._log.producer(self._name)
        return self.last_epoch()

    def prepare(self, sinks: Iterable[str]) -> None:
        """Make the topics that are missing. See `CannotTakeBack`."""
        for name in sinks:
            sink = self._sinks[name]
            if sink.topic not in self._log.topics():
                self._log.create_topic(sink.topic, sink.schema, settings=sink.settings)
            self._topics[name] = self._log.topic(sink.topic)

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        """Write an epoch to all topics at once; False if it was before. See `Target`. There is nothing to show.

        TooMuchError: the rows do not fit into one transaction.
        """
        producer = self._taken_over()
        with producer.current():  # a replaced instance is refused, also when it repeats itself
            if epoch <= self.last_epoch():
                return False
        written = {name: self._rows(name, list(parts)) for name, parts in changes.items()}
        size = sum(rows.nbytes for both in written.values() for rows in both)
        if size > self.most_bytes():
            raise TooMuchError(
                f"sinks {', '.join(written)}: the rows of epoch {epoch} have {size} bytes; "
                f"{self.most_bytes()} are allowed",
                hint="write fewer columns, or fewer rows",
            )
        with self._log.transaction(producer, sequence=epoch) as transaction:
            for name, (deleted, added) in written.items():
                _append(transaction, self._topics[name], deleted, added)
        return True

    def close(self) -> None:
        """Nothing is open here: producers and topics are closed with the log."""

    def last_epoch(self) -> int:
        return max(0, self._taken_over().last_transaction())

    def destinations(self) -> dict[str, Destination]:
        return {name: _destination(topic) for name, topic in self._topics.items()}

    def most_bytes(self) -> int:
        return MOST_BYTES

    def _taken_over(self) -> Producer:
        if self._producer is None:
            raise DeclarationError(
                f"producer '{self._name}': no instance has taken over", hint="call take_over before anything else"
            )
        return self._producer

    def _rows(self, name: str, changes: list[Changes]) -> tuple[pa.Table, pa.Table]:
        """The keys that are to be deleted, and the rows that are to be appended."""
        topic = self._topics.get(name)
        if topic is None:
            raise DeclarationError(
                f"sink '{name}': its topic is not prepared; there are {', '.join(self._topics) or 'none'}",
                hint="call prepare before apply",
            )
        if not changes:
            return topic.schema.empty_table(), topic.schema.empty_table()
        key = list(topic.settings.key)
        rows = pa.Table.from_batches([part.rows for part in changes])
        weights: Weights = np.concatenate([part.weights.to_numpy() for part in changes])
        _refuse_null_keys(name, rows, key)
        return _deleted(rows, weights, key), _added(rows, weights, self._sinks[name].time)


def check_token(owner: Producer, app: str, token: int) -> None:
    """Refuse a token that is not the epoch of the producer it comes from."""
    if owner.epoch != token:
        raise FencedError(
            f"app '{app}': instance {token} was replaced by instance {owner.epoch}",
            hint="only the newest instance of an app runs; end this one, or start it again to take over",
        )


# -- which topics there are -------------------------------------------------------------------------------------------


def check_columns(log: Log, plan: flow.Plan, schemas: Schemas) -> None:
    """Refuse rows that a topic cannot hold, or those of a topic that is there do not agree with."""
    known = log.topics()
    for sink in plan.sinks:
        schema = parse_schema(schemas[sink.name])
        where = f"{sink.place}: sink '{sink.name}'"
        try:
            check_topic(sink.topic, schema, _settings(sink))
        except DeclarationError as error:
            raise DeclarationError(f"{where}: {error.message}", hint=error.hint) from None
        if sink.topic in known:
            topic = log.topic(sink.topic)
            wanted, found = _described(schema, _settings(sink)), _described(topic.schema, topic.settings)
            if wanted != found:
                raise DeclarationError(
                    f"{where}: topic '{sink.topic}' has {found}; the rows have {wanted}",
                    hint="name another topic, or drop this one if nobody needs it: penstock topic drop",
                )


def topic_sinks(plan: flow.Plan, schemas: Schemas) -> dict[str, TopicSink]:
    """The sinks of a plan that write topics, by name."""
    sinks = {sink.name: (sink, parse_schema(schemas[sink.name])) for sink in plan.sinks}
    return {
        name: TopicSink(sink.topic, schema, _settings(sink), _time(sink, schema))
        for name, (sink, schema) in sinks.items()
    }


def sinks_producer(ledger: Ledger) -> str:
    """The producer of an app's sinks, whose sequences are epochs. An app that is begun anew counts from 1 again."""
    return f"{instance_name(ledger.app)}.sinks.{ledger.created}"


def existing_destinations(log: Log, plan: flow.Plan) -> dict[str, Destination]:
    """Where the sinks of a plan write, as far as their topics are there. Nothing is made."""
    known = log.topics()
    return {sink.name: _destination(log.topic(sink.topic)) for sink in plan.sinks if sink.topic in known}


def _destination(topic: Topic) -> Destination:
    return Destination(topic.description.id, is_empty=not any(topic.ends().values()))


def _time(sink: flow.Sink, schema: pa.Schema) -> str | None:
    """The column with the event time, unless a user's function has left it out."""
    time = sink.node.shape.time
    return time if time in schema.names else None


def _settings(sink: flow.Sink) -> TopicSettings:
    return TopicSettings(partitions=sink.partitions, key=sink.node.shape.key or ())


def _described(schema: pa.Schema, settings: TopicSettings) -> str:
    """The columns in any order, and the key."""
    columns = sorted(to_ddl(pa.schema([field.with_nullable(True)])) for field in schema)
    key = f"the key {', '.join(settings.key)}" if settings.key else "no key"
    return f"the columns {', '.join(columns)} and {key}"


# -- what is written --------------------------------------------------------------------------------------------------


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
