"""`penstock topic evolve`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import print_json, print_line


@command
def evolve(
    name: TopicName,
    schema: Annotated[
        str, typer.Option(metavar="DDL", help="The whole new schema: what there is, and new or wider columns.")
    ],
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Change the schema of a topic: add nullable columns, widen types. Rows already stored read as the new schema."""
    from penstock.cli.topic.describe import topic_document

    with open_log(log_path) as log:
        topic = log.topic(name)
        before = topic.schema_version
        topic.evolve(schema)
        version = topic.schema_version
        if as_json:
            print_json(topic_document(log, topic))
        elif version == before:
            print_line(f"topic '{name}' has this schema already; nothing was changed")
        else:
            print_line(f"topic '{name}' has schema {version} now: {topic.schemas[-1]}")
