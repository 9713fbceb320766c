"""`penstock topic evolve`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import print_json, say


@command
def evolve(
    name: TopicName,
    schema: Annotated[
        str, typer.Option(metavar="DDL", help="The whole new schema: what there is, and new or wider columns.")
    ],
    log: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Change the schema of a topic: add nullable columns, widen types. Rows already stored read as the new schema."""
    from penstock.cli.topic.describe import description_of

    with open_log(log) as opened:
        topic = opened.topic(name)
        before = len(topic.description.schemas)
        topic.evolve(schema)
        version = len(topic.description.schemas)
        if as_json:
            print_json(description_of(opened, topic))
        elif version == before:
            say(f"topic '{name}' has this schema already; nothing was changed")
        else:
            say(f"topic '{name}' has schema {version} now: {topic.description.schemas[-1]}")
