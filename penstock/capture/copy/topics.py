"""The topics of a copy: created from the tables of the source, checked against them, and changed after them."""

from __future__ import annotations

import pyarrow as pa

from penstock.contracts import COMMIT_TIME, Log, SourceTable, Topic, TopicSettings
from penstock.errors import DeclarationError
from penstock.schema.arrow import conform, evolve, parse_schema
from penstock.schema.ddl import type_ddl
from penstock.schema.hashing import can_be_key

# By these columns an outbox says which events belong together, and have to stay in order.
_EVENT_KEYS = ("aggregate_id", "aggregateid", "aggregateId")


def table_topic(log: Log, table: SourceTable, name: str, *, partitions: int = 1) -> Topic:
    """The topic for the rows of a table: created, or checked and changed to have all of its columns."""
    assert table.schema is not None
    key = topic_key(table)
    schema = parse_schema(_nullable_but(table.schema, key))
    if name not in log.topics():
        settings = TopicSettings(partitions=partitions, key=key, time=COMMIT_TIME)
        _check_key_types(table, schema, key)
        return log.create_topic(name, schema, settings=settings)
    topic = log.topic(name)
    _check_settings(topic, table, key)
    follow_schema(topic, table.name, schema)
    return topic


def _check_key_types(table: SourceTable, schema: pa.Schema, key: tuple[str, ...]) -> None:
    for name in key:
        if not can_be_key(schema.field(name).type):
            raise DeclarationError(
                f"table '{table.name}': its key column '{name}' is a {type_ddl(schema.field(name).type)}, which topics "
                "cannot have as a key",
                hint=f'capture it as text: --as-text {table.name}.{name}, or as_text=["{name}"] in app.capture',
            )


def topic_key(table: SourceTable) -> tuple[str, ...]:
    """The key of a table; of a list of events, the column that says which of them belong together."""
    if not table.inserts_only:
        return table.key
    assert table.schema is not None
    return next(((name,) for name in _EVENT_KEYS if name in table.schema.names), ())


def follow_schema(topic: Topic, table: str, schema: pa.Schema) -> None:
    """Change the topic so that it takes rows of this schema. DeclarationError if topics cannot change like that."""
    wanted = parse_schema(_nullable_but(schema, topic.settings.key))
    fields, reasons = [], []
    for field in topic.schema:
        if field.name not in wanted.names:
            fields.append(field)
            continue
        found = wanted.field(field.name).type
        wider = _wider_type(field.type, found)
        if wider is None or (wider != field.type and field.name in topic.settings.key):
            reasons.append(f"'{field.name}' is {type_ddl(found)} in the table and {type_ddl(field.type)} in the topic")
        fields.append(field.with_type(wider or field.type))
    if reasons:
        raise DeclarationError(
            f"table '{table}': its topic '{topic.name}' cannot follow this change: column {'; column '.join(reasons)}",
            hint=f"capture it into a new topic: --topic {table}={topic.name}_2",
        )
    added = [field for field in wanted if field.name not in topic.schema.names]
    changed = pa.schema([*fields, *added])
    if not changed.equals(topic.schema):
        topic.evolve(changed)


def fitted(rows: pa.RecordBatch, topic: Topic, table: str) -> pa.RecordBatch:
    """The rows with the columns of the topic, which is changed if it lacks some of theirs."""
    schema = topic.schema
    if rows.schema.equals(schema):
        return rows
    if any(
        name not in schema.names or rows.schema.field(name).type != schema.field(name).type
        for name in rows.schema.names
    ):
        follow_schema(topic, table, rows.schema)
    return conform(rows, pa.schema([field.with_nullable(True) for field in topic.schema]))


def _check_settings(topic: Topic, table: SourceTable, key: tuple[str, ...]) -> None:
    where = f"table '{table.name}': the topic '{topic.name}'"
    hint = f"capture it into another topic: --topic {table.name}={topic.name}_2"
    if topic.settings.key != key:
        raise DeclarationError(
            f"{where} has the key {_names(topic.settings.key)}; that of the table is {_names(key)}", hint=hint
        )
    if topic.settings.time != COMMIT_TIME:
        raise DeclarationError(
            f"{where} has the event time {topic.settings.time or 'none'}; a captured table has {COMMIT_TIME}", hint=hint
        )
    if topic.settings.versioned:
        raise DeclarationError(f"{where} numbers the events of its keys, which a copy cannot do", hint=hint)


def _wider_type(one: pa.DataType, two: pa.DataType) -> pa.DataType | None:
    """The one of two types that holds the values of both."""
    for narrow, wide in ((one, two), (two, one)):
        try:
            evolve(pa.schema([pa.field("value", narrow)]), pa.schema([pa.field("value", wide)]))
            return wide
        except DeclarationError:
            continue
    return None


def _nullable_but(schema: pa.Schema, key: tuple[str, ...]) -> pa.Schema:
    return pa.schema([field.with_nullable(field.name not in key) for field in schema])


def _names(key: tuple[str, ...]) -> str:
    return ", ".join(key) or "none"
