"""`penstock topic describe`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import instant, print_json, print_table, say
from penstock.units import format_duration, format_size

if TYPE_CHECKING:
    from penstock.log import Log, Statistics, Topic


@command
def describe(name: TopicName, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Show a topic: its schema and the versions of it, its settings, its partitions, and the groups that read it."""
    with open_log(log) as opened:
        topic = opened.topic(name)
        if as_json:
            print_json(description_of(opened, topic))
        else:
            _print_schema(topic)
            _print_settings(opened, topic)
            print_partitions(topic.statistics())


def description_of(log: Log, topic: Topic) -> dict[str, object]:
    """Everything there is to know about a topic, for JSON."""
    return {
        "topic": topic.name,
        "created_at": _created(topic),
        "schema": topic.description.schemas[-1],
        "schema_versions": list(topic.description.schemas),
        "settings": asdict(topic.settings),
        "partitions": [partition_document(one) for one in topic.statistics()],
        "groups": groups_reading(log, topic.name),
    }


def _created(topic: Topic) -> str:
    return instant(datetime.fromisoformat(topic.description.created))


def groups_reading(log: Log, topic: str) -> list[str]:
    """The groups that read a topic."""
    return [group for group in log.groups() if topic in log.group(group).topics()]


def partition_document(one: Statistics) -> dict[str, object]:
    """The size and range of a partition, for JSON."""
    return {
        "partition": one.partition,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "rows": one.rows,
        "bytes": one.bytes,
        "segments": one.segments,
        "last_event_time": None if one.max_time is None else instant(one.max_time),
        "last_append_time": None if one.append_time is None else instant(one.append_time),
    }


def print_partitions(statistics: list[Statistics]) -> None:
    """The table of a topic's partitions."""
    columns = ("partition", "start", "end", "rows", "size", "segments", "last event", "last append")
    documents = [partition_document(one) for one in statistics]
    print_table(
        columns,
        [
            [format_size(one.bytes) if name == "bytes" else value for name, value in document.items()]
            for one, document in zip(statistics, documents, strict=True)
        ],
    )


def _print_schema(topic: Topic) -> None:
    from penstock.log.ddl import comment_of, type_ddl

    say(f"topic {topic.name}")
    say()
    print_table(
        ("column", "type", "null", "comment"),
        [
            (field.name, type_ddl(field.type), "yes" if field.nullable else "no", comment_of(field) or "")
            for field in topic.schema
        ],
    )
    say()
    versions = topic.description.schemas
    if len(versions) > 1:
        print_table(("version", "schema"), enumerate(versions, start=1))
        say()


def _print_settings(log: Log, topic: Topic) -> None:
    settings = topic.settings
    retained = [
        *([format_duration(settings.retention_seconds)] if settings.retention_seconds is not None else []),
        *([f"{format_size(settings.retention_bytes)} per partition"] if settings.retention_bytes is not None else []),
    ]
    for name, value in (
        ("key", ", ".join(settings.key) or "none"),
        ("event time", settings.time or "none"),
        ("durability", settings.durability),
        ("versioned", "yes" if settings.versioned else "no"),
        ("retention", ", ".join(retained) or "for ever"),
        ("segments of", format_size(settings.segment_bytes)),
        ("largest append", format_size(settings.max_batch_bytes)),
        ("created", _created(topic)),
        ("read by", ", ".join(groups_reading(log, topic.name)) or "no group"),
    ):
        say(f"{name + ':':<16}{value}")
    say()
