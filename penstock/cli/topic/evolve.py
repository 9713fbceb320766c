"""`penstock topic evolve`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import print_json, print_line
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from penstock.log import Topic


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
        try:
            topic.evolve(schema)
        except DeclarationError as error:
            raise _with_command(error, topic, schema) from None
        version = topic.schema_version
        if as_json:
            print_json(topic_document(log, topic))
        elif version == before:
            print_line(f"topic '{name}' has this schema already; nothing was changed")
        else:
            print_line(f"topic '{name}' has schema {version} now: {topic.schemas[-1]}")


def _with_command(error: DeclarationError, topic: Topic, schema: str) -> DeclarationError:
    """The same refusal; with the command for the whole schema, if only the columns that change were given."""
    from penstock.schema.arrow import parse_schema, to_ddl, whole_schema

    whole = whole_schema(topic.schema, parse_schema(schema), keys=topic.settings.key)
    if whole is None:
        return error
    command = f"penstock topic evolve {topic.name} --schema {shlex.quote(to_ddl(whole))}"
    return DeclarationError(error.message, hint=f"give the whole schema: {command}")
