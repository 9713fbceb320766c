"""`penstock topic describe`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import age_text, instant_text, print_json, print_line, print_table
from penstock.units import format_duration, format_size, now_microseconds

if TYPE_CHECKING:
    from penstock.engine.ledger.status import TopicStatus
    from penstock.log import Log, Statistics, Topic


@command
def describe(name: TopicName, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Show a topic: its schema and its versions, its settings, its partitions, and who reads it: apps and groups.

    Example: penstock topic describe orders
    """
    with open_log(log_path) as log:
        topic = log.topic(name)
        if as_json:
            print_json(topic_document(log, topic))
        else:
            _print_schema(topic)
            _print_settings(topic)
            print_partitions(topic.statistics())
            _print_readers(log, topic)


def topic_document(log: Log, topic: Topic) -> dict[str, object]:
    """A topic as JSON shows it."""
    return {
        "topic": topic.name,
        "created_at": _creation_time(topic),
        "schema": topic.schemas[-1],
        "schema_versions": list(topic.schemas),
        "settings": asdict(topic.settings),
        "partitions": [partition_document(partition) for partition in topic.statistics()],
        "apps": [_app_document(*reader) for reader in _apps_reading(log, topic)],
        "groups": [{"group": group, "lag": lag} for group, lag in _groups_reading(log, topic.name)],
    }


def _creation_time(topic: Topic) -> str:
    return instant_text(topic.created)


def _apps_reading(log: Log, topic: Topic) -> list[tuple[str, bool, TopicStatus]]:
    """The apps that read a topic: their names, whether they are running, and how far they have read it."""
    from penstock.engine.ledger.status import app_statuses

    return [
        (found.app, found.running is not None, read)
        for found in app_statuses(log)
        for read in found.topics
        if read.topic == topic.name and not read.dropped
    ]


def _app_document(app: str, running: bool, read: TopicStatus) -> dict[str, object]:
    times = {"oldest_unread": read.oldest_unread, "watermark": read.watermark}
    shown = {name: None if time is None else instant_text(time) for name, time in times.items()}
    return {"app": app, "running": running, "lag": read.lag, **shown}


def _groups_reading(log: Log, topic: str) -> list[tuple[str, int]]:
    """The groups that read a topic, and how many offsets they are behind."""
    lags = {group: log.group(group).lag() for group in log.groups() if topic in log.group(group).topics()}
    return [(group, sum(part.lag for part in parts if part.topic == topic)) for group, parts in lags.items()]


def partition_document(partition: Statistics) -> dict[str, object]:
    """A partition as JSON shows it."""
    return {
        "partition": partition.partition,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "rows": partition.rows,
        "bytes": partition.bytes,
        "segments": partition.segments,
        "last_event_time": None if partition.max_time is None else instant_text(partition.max_time),
        "last_append_time": None if partition.append_time is None else instant_text(partition.append_time),
    }


def print_partitions(statistics: list[Statistics]) -> None:
    """Print the table of a topic's partitions."""
    columns = ("partition", "start", "end", "rows", "size", "segments", "last event", "last append")
    documents = [partition_document(partition) for partition in statistics]
    print_table(
        columns,
        [
            [format_size(partition.bytes) if name == "bytes" else value for name, value in document.items()]
            for partition, document in zip(statistics, documents, strict=True)
        ],
    )


def _print_schema(topic: Topic) -> None:
    from penstock.schema.ddl import comment_of, type_ddl

    print_line(f"topic {topic.name}")
    print_line()
    print_table(
        ("column", "type", "null", "comment"),
        [
            (field.name, type_ddl(field.type), "yes" if field.nullable else "no", comment_of(field) or "")
            for field in topic.schema
        ],
    )
    print_line()
    versions = topic.schemas
    if len(versions) > 1:
        print_table(("version", "schema"), enumerate(versions, start=1))
        print_line()


def _print_readers(log: Log, topic: Topic) -> None:
    now = now_microseconds()
    rows: list[tuple[object, ...]] = []
    for name, running, read in _apps_reading(log, topic):
        unread = None if read.oldest_unread is None else age_text(read.oldest_unread, now)
        rows.append((f"app {name}", "running" if running else "stopped", read.lag, unread))
    rows += [(f"group {group}", None, lag, None) for group, lag in _groups_reading(log, topic.name)]
    print_line()
    if rows:
        print_table(("read by", "state", "lag", "oldest unread"), rows)
    else:
        print_line("no app and no group reads it")


def _print_settings(topic: Topic) -> None:
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
        ("retention", ", ".join(retained) or "forever"),
        ("segments of", format_size(settings.segment_bytes)),
        ("largest append", format_size(settings.max_batch_bytes)),
        ("created", _creation_time(topic)),
    ):
        print_line(f"{name + ':':<16}{value}")
    print_line()
