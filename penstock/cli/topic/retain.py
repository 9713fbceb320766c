"""`penstock topic retain`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, Retain, RetainBytes, TopicName, open_log
from penstock.cli.output import print_json, print_line


@command
def retain(
    name: TopicName,
    retain: Retain = None,
    retain_bytes: RetainBytes = None,
    forever: Annotated[bool, typer.Option("--for-ever", help="Keep everything from now on.")] = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Change how much of a topic is kept. `penstock expire` lets go at once what is too much."""
    from penstock.cli.topic.describe import topic_document
    from penstock.log import Retention

    if forever == (retain is not None or retain_bytes is not None):
        raise typer.BadParameter("give --retain, --retain-bytes or both, or else --for-ever")
    with open_log(log_path) as log:
        topic = log.topic(name)
        topic.retain(Retention(retain, retain_bytes))
        if as_json:
            print_json(topic_document(log, topic))
        else:
            print_line(f"the retention of topic '{name}' was changed; it applies from the next segment on")
