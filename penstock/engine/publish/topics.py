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

from penstock.contracts import Changes, Destination, Log, Topic, TopicRows, TopicSettings
from penstock.engine.publish.app_writer import AppWriter
from penstock.errors import DeclarationError, RowError, TooMuchError
from penstock.flow import plan as flow
from penstock.log import check_topic
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import to_ddl

Schemas = Mapping[str, pa.Schema]
Weights = npt.NDArray[np.int64]
# A writer takes at least 512 MiB in one step (see `contracts.Writer`). The rest is room for what is stored beside rows.
MOST_BYTES = 384 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Where a sink writes: a topic, and how it is made. An epoch's rows are in the order of the column `time`."""

    topic: str
    schema: pa.Schema
    settings: TopicSettings
    time: str | None = None


class TopicTarget:
    """A `Target` that `CannotTakeBack` and `LimitsEpochs`: the topics of an app's sinks, by the names of the sinks."""

    def __init__(self, log: Log, writer: AppWriter, sinks: Mapping[str, TopicSink]) -> None:
        self._log = log
        self._writer = writer
        self._sinks = sinks
        self._topics: dict[str, Topic] = {}  # of sinks that are prepared

    def take_over(self, app: str, token: int) -> int:
        """Be the instance that writes: whoever has opened the app's writer is. See `Target`."""
        return self._writer.take_over(app, token)

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
        if epoch <= self.last_epoch():
            self._writer.refuse_if_replaced()  # also when it repeats itself
            return False
        written = {name: self._rows(name, list(parts)) for name, parts in changes.items()}
        size = sum(rows.nbytes for both in written.values() for rows in both)
        if size > self.most_bytes():
            raise TooMuchError(
                f"sinks {', '.join(written)}: the rows of epoch {epoch} have {size} bytes; "
                f"{self.most_bytes()} are allowed",
                hint="write fewer columns, or fewer rows",
            )
        rows = [part for name, both in written.items() for part in _topic_rows(self._topics[name].name, *both)]
        self._writer.write_epoch(rows, epoch)
        return True

    def close(self) -> None:
        """Nothing is open here: the writer and the topics are closed with the log."""

    def last_epoch(self) -> int:
        return self._writer.epoch

    def destinations(self) -> dict[str, Destination]:
        return {name: _destination(topic) for name, topic in self._topics.items()}

    def most_bytes(self) -> int:
        return MOST_BYTES

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
        return _deleted_keys(rows, weights, key), _added_rows(rows, weights, self._sinks[name].time)


# -- which topics there are -------------------------------------------------------------------------------------------


def check_columns(log: Log, plan: flow.Plan, schemas: Schemas) -> None:
    """Refuse rows that a topic cannot hold, or those of a topic that is there do not agree with."""
    known = log.topics()
    for sink in plan.sinks:
        schema = parse_schema(schemas[sink.name])
        where = f"{sink.location}: sink '{sink.name}'"
        try:
            check_topic(sink.topic, schema, _settings(sink))
        except DeclarationError as error:
            raise DeclarationError(f"{where}: {error.message}", hint=error.hint) from None
        if sink.topic in known:
            topic = log.topic(sink.topic)
            wanted, found = _describe_columns(schema, _settings(sink)), _describe_columns(topic.schema, topic.settings)
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


def existing_destinations(log: Log, plan: flow.Plan) -> dict[str, Destination]:
    """Where the sinks of a plan write, as far as their topics are there. Nothing is made."""
    known = log.topics()
    return {sink.name: _destination(log.topic(sink.topic)) for sink in plan.sinks if sink.topic in known}


def _destination(topic: Topic) -> Destination:
    return Destination(topic.id, is_empty=not any(topic.ends().values()))


def _time(sink: flow.Sink, schema: pa.Schema) -> str | None:
    """The column with the event time, unless a user's function has left it out."""
    time = sink.node.shape.time
    return time if time in schema.names else None


def _settings(sink: flow.Sink) -> TopicSettings:
    return TopicSettings(partitions=sink.partitions, key=sink.node.shape.key or ())


def _describe_columns(schema: pa.Schema, settings: TopicSettings) -> str:
    """The columns in any order, and the key."""
    columns = sorted(to_ddl(pa.schema([field.with_nullable(True)])) for field in schema)
    key = f"the key {', '.join(settings.key)}" if settings.key else "no key"
    return f"the columns {', '.join(columns)} and {key}"


# -- what is written --------------------------------------------------------------------------------------------------


def _topic_rows(topic: str, deleted: pa.Table, added: pa.Table) -> Iterator[TopicRows]:
    if deleted.num_rows:
        yield TopicRows(topic, deleted, [True] * deleted.num_rows)
    if added.num_rows:
        yield TopicRows(topic, added)


def _refuse_null_keys(name: str, rows: pa.Table, key: list[str]) -> None:
    for column in key:
        if rows.column(column).null_count:
            raise RowError(
                f"sink '{name}': a row has no '{column}', which is part of the key, and a topic cannot hold it",
                hint=f'leave such rows out before the sink: .where("{column} is not null")',
            )


def _added_rows(rows: pa.Table, weights: Weights, time: str | None) -> pa.Table:
    """The rows that have come, each as often as its weight says."""
    added = rows.take(np.repeat(np.arange(len(weights)), np.maximum(weights, 0)))
    return added if time is None else added.sort_by(time)


def _deleted_keys(rows: pa.Table, weights: Weights, key: list[str]) -> pa.Table:
    """The keys whose row has gone, and no other has taken its place."""
    if not (weights < 0).any():
        return rows.slice(0, 0)
    assert key, "a topic without a key cannot retract rows"
    removed, added = (rows.filter(pa.array(chosen)).select(key) for chosen in (weights < 0, weights > 0))
    return removed.join(added, keys=key, join_type="left anti")
