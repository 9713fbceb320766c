"""`penstock topic drop`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, Yes, open_log
from penstock.cli.output import count_text, print_json, print_line


@command
def drop(name: TopicName, yes: Yes = False, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Remove a topic with all its rows and the offsets of its groups."""
    with open_log(log_path) as log:
        rows = sum(partition.rows for partition in log.topic(name).statistics())
        if not yes:
            typer.confirm(f"Drop topic '{name}' with {count_text(rows, 'row')}?", abort=True, err=True)
        log.drop_topic(name)
    if as_json:
        print_json({"topic": name, "dropped": True, "rows": rows})
    else:
        print_line(f"dropped topic '{name}' with {count_text(rows, 'row')}")
