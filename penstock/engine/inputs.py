"""The topics an app reads: made when they are missing, refused when they are not what the app declares."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.planning import Input
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.log import Log, TopicSettings
from penstock.log.ddl import to_ddl
from penstock.log.schema import parse_schema
from penstock.log.topic import Topic


def open_inputs(log: Log, plan: flow.Plan) -> dict[str, Input]:
    sources = [node for node in flow.nodes(plan) if isinstance(node, flow.Topic | flow.Changelog)]
    return {node.name: Input(node, _opened(log, node)) for node in sources}


def _opened(log: Log, node: flow.Source) -> Topic:
    schema = parse_schema(node.schema)
    if node.name not in log.topics():
        time = node.time if isinstance(node, flow.Changelog) else (node.timing.column if node.timing else None)
        settings = TopicSettings(partitions=node.partitions, key=node.key, time=time)
        return log.create_topic(node.name, schema, settings=settings)
    topic = log.topic(node.name)
    if topic.settings.key != node.key:
        raise _other(node, "key", ", ".join(topic.settings.key) or "none", ", ".join(node.key) or "none")
    for field in schema:
        if field.name not in topic.schema.names:
            raise _other(node, "column", ", ".join(topic.schema.names), field.name)
        stored = topic.schema.field(field.name)
        if stored.type != field.type:
            raise _other(node, f"type of '{field.name}'", to_ddl(pa.schema([stored])), to_ddl(pa.schema([field])))
    return topic


def _other(node: flow.Source, what: str, stored: str, declared: str) -> DeclarationError:
    return DeclarationError(
        f"{node.place}: topic '{node.name}': its {what} in the log is {stored}; this app declares {declared}",
        hint="declare the topic as it is, or change it: penstock topic evolve",
    )
