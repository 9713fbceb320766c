"""The topics that sinks write: made when they are missing, refused when their columns are not what a sink needs."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.engine.ledger.ledger import Ledger, instance_name
from penstock.engine.publish.topic_sinks import TopicSink
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.log import Log, TopicSettings
from penstock.log.ddl import to_ddl
from penstock.log.description import check_topic
from penstock.log.schema import parse_schema

Schemas = Mapping[str, pa.Schema]


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


def open_sinks(log: Log, plan: flow.Plan, schemas: Schemas) -> dict[str, TopicSink]:
    """Where each sink writes; topics that are missing are made."""
    for sink in plan.sinks:
        if sink.topic not in log.topics():
            log.create_topic(sink.topic, parse_schema(schemas[sink.name]), settings=_settings(sink))
    return {sink.name: TopicSink(log.topic(sink.topic), _time(sink, schemas[sink.name])) for sink in plan.sinks}


def _time(sink: flow.Sink, schema: pa.Schema) -> str | None:
    """The column with the event time, unless a user's function has left it out."""
    time = sink.node.shape.time
    return time if time in schema.names else None


def sinks_producer(ledger: Ledger) -> str:
    """The producer of an app's sinks, whose sequences are epochs. An app that is begun anew counts from 1 again."""
    return f"{instance_name(ledger.app)}.sinks.{ledger.created}"


def _settings(sink: flow.Sink) -> TopicSettings:
    return TopicSettings(partitions=sink.partitions, key=sink.node.shape.key or ())


def _described(schema: pa.Schema, settings: TopicSettings) -> str:
    """The columns in any order, and the key."""
    columns = sorted(to_ddl(pa.schema([field.with_nullable(True)])) for field in schema)
    key = f"the key {', '.join(settings.key)}" if settings.key else "no key"
    return f"the columns {', '.join(columns)} and {key}"
