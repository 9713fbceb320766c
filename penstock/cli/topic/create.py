"""`penstock topic create`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, Retain, RetainBytes, open_log, option_parser
from penstock.cli.output import count_text, print_json, print_line
from penstock.units import parse_size


class Durability(StrEnum):
    """When an append is acknowledged."""

    FSYNC = "fsync"
    OS = "os"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the new topic.")]
Schema = Annotated[
    str,
    typer.Option(metavar="DDL", help="Its columns, as Spark writes them: 'id bigint not null, amount double'."),
]
Key = Annotated[str | None, typer.Option(metavar="A,B", help="The columns whose values decide a row's partition.")]
Time = Annotated[str | None, typer.Option(metavar="COLUMN", help="The timestamp at which a row happened.")]
Partitions = Annotated[int, typer.Option(metavar="N", help="How many partitions; it cannot be changed later.")]
When = Annotated[
    Durability,
    typer.Option(help="fsync: acknowledged rows are on disk. os: they survive a crash of the process only."),
]
Versioned = Annotated[bool, typer.Option("--versioned", help="Number the events of each key, for conditional appends.")]
SegmentBytes = Annotated[
    int | None,
    typer.Option(parser=option_parser(parse_size), metavar="SIZE", help="When a new file begins: '128 MiB'."),
]
MaxBatchBytes = Annotated[
    int | None, typer.Option(parser=option_parser(parse_size), metavar="SIZE", help="The largest append: '64 MiB'.")
]


@command
def create(
    name: Name,
    schema: Schema,
    key: Key = None,
    time: Time = None,
    partitions: Partitions = 1,
    durability: When = Durability.FSYNC,
    versioned: Versioned = False,
    retain: Retain = None,
    retain_bytes: RetainBytes = None,
    segment_bytes: SegmentBytes = None,
    max_batch_bytes: MaxBatchBytes = None,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Create a topic; and the log, if the folder is new or empty."""
    from penstock.cli.topic.describe import topic_document
    from penstock.log import TopicSettings, check_topic
    from penstock.schema.arrow import parse_schema

    default = TopicSettings()
    settings = TopicSettings(
        partitions=partitions,
        key=tuple(column.strip() for column in key.split(",")) if key else (),
        time=time,
        durability=durability.value,
        versioned=versioned,
        retention_seconds=retain,
        retention_bytes=retain_bytes,
        segment_bytes=default.segment_bytes if segment_bytes is None else segment_bytes,
        max_batch_bytes=default.max_batch_bytes if max_batch_bytes is None else max_batch_bytes,
    )
    # Checked before the log is opened, so that a mistake leaves no new folder behind.
    check_topic(name, parse_schema(schema), settings)
    with open_log(log_path, create=True) as log:
        topic = log.create_topic(name, schema, settings=settings)
        if as_json:
            print_json(topic_document(log, topic))
        else:
            print_line(f"created topic '{name}' with {count_text(partitions, 'partition')} in {log_path}")
