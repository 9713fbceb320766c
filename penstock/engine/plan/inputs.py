"""The topics an app reads: made when they are missing, refused when they are not what the app declares."""

from __future__ import annotations

import shlex

import pyarrow as pa

from penstock.contracts import Log, Topic, TopicSettings
from penstock.engine.plan.next_cut import Input
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.messages import MESSAGE_SCHEMA
from penstock.schema.arrow import evolve, parse_schema
from penstock.schema.ddl import to_ddl

_NONE: frozenset[str] = frozenset()


def check_inputs(log: Log, plan: flow.Plan) -> None:
    """Refuse topics that are there and are not what the app declares."""
    known = set(log.topics())
    for node in _sources(plan):
        if node.name in known:
            _check(log.topic(node.name), node)


def open_inputs(log: Log, plan: flow.Plan) -> dict[str, Input]:
    tables = _looked_up(plan)
    return {node.name: Input(node, open_or_create(log, node), tables.get(node.name, _NONE)) for node in _sources(plan)}


def _looked_up(plan: flow.Plan) -> dict[str, frozenset[str]]:
    """For topics whose events look up rows of tables: what those tables are made of.

    Where two would wait for each other, neither does.
    """
    found: dict[str, frozenset[str]] = {}
    for join in flow.nodes(plan):
        if isinstance(join, flow.AsOfJoin):
            for name in _names(join.left):
                found[name] = found.get(name, _NONE) | _names(join.right)
    return {
        name: frozenset(table for table in tables if not _waits(table, name, found)) for name, tables in found.items()
    }


def _waits(name: str, for_: str, found: dict[str, frozenset[str]]) -> bool:
    """Whether a topic would wait for another, directly or through others; every topic waits for itself."""
    reached, ahead = set[str](), [name]
    while ahead:
        topic = ahead.pop()
        if topic not in reached:
            reached.add(topic)
            ahead.extend(found.get(topic, _NONE))
    return for_ in reached


def _names(node: flow.Node) -> frozenset[str]:
    return frozenset(source.name for source in flow.upstream(node) if isinstance(source, flow.Topic | flow.Changelog))


def _sources(plan: flow.Plan) -> list[flow.Source]:
    return [node for node in flow.nodes(plan) if isinstance(node, flow.Topic | flow.Changelog)]


def open_or_create(log: Log, node: flow.Source) -> Topic:
    """The topic that an app declares. It is created as declared if it does not exist."""
    if node.name in log.topics():
        topic = log.topic(node.name)
        _check(topic, node)
        return topic
    if isinstance(node, flow.MessageTable):
        settings = TopicSettings(partitions=node.partitions, key=("key",))
        return log.create_topic(node.name, MESSAGE_SCHEMA, settings=settings)
    time = node.time if isinstance(node, flow.Changelog) else (node.timing.column if node.timing else None)
    settings = TopicSettings(partitions=node.partitions, key=node.key, time=time)
    return log.create_topic(node.name, parse_schema(node.schema), settings=settings)


def _check(topic: Topic, node: flow.Source) -> None:
    if isinstance(node, flow.MessageTable):
        _check_columns(topic, node, MESSAGE_SCHEMA)
        return
    if topic.settings.key != node.key:
        stored_key, key = (", ".join(columns) or "none" for columns in (topic.settings.key, node.key))
        another = "create another topic with this key: the key of a topic cannot be changed"
        raise _other(node, "key", stored_key, key, another)
    _check_columns(topic, node, parse_schema(node.schema))


def _check_columns(topic: Topic, node: flow.Source, declared: pa.Schema) -> None:
    for field in declared:
        if field.name not in topic.schema.names:
            raise _other(node, "columns", ", ".join(topic.schema.names), field.name, _change_of_schema(topic, declared))
        stored = topic.schema.field(field.name)
        if stored.type != field.type:
            raise _other(
                node, f"column '{field.name}'", _shown(stored), _shown(field), _change_of_schema(topic, declared)
            )


def _shown(field: pa.Field[pa.DataType]) -> str:
    return to_ddl(pa.schema([field.with_nullable(True)]))


def _other(node: flow.Source, what: str, stored: str, declared: str, change: str) -> DeclarationError:
    verb = "are" if what == "columns" else "is"
    return DeclarationError(
        f"{node.location}: topic '{node.name}': its {what} in the log {verb} {stored}; this app declares {declared}",
        hint=f"declare the topic as it is, or {change}",
    )


def _change_of_schema(topic: Topic, declared: pa.Schema) -> str:
    """How the topic gets the declared columns beside its own: the command, if the rows in it can stay."""
    fields = {field.name: field for field in topic.schema}
    for field in declared:
        # Rows that are stored may have no value for it.
        nullable = field.name not in fields or fields[field.name].nullable
        fields[field.name] = field.with_nullable(nullable)
    try:
        evolved = evolve(topic.schema, pa.schema([*fields.values()]), keys=topic.settings.key)
    except DeclarationError:
        return "write such rows to another topic: stored columns can only become wider, as int to bigint"
    return f"change it: penstock topic evolve {topic.name} --schema {shlex.quote(to_ddl(evolved))}"
