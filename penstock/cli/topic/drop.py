"""`penstock topic drop`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, Yes, open_log
from penstock.cli.output import counted, print_json, say


@command
def drop(name: TopicName, yes: Yes = False, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Remove a topic with all its rows and the offsets of its groups."""
    with open_log(log) as opened:
        rows = sum(one.rows for one in opened.topic(name).statistics())
        if not yes:
            typer.confirm(f"Drop topic '{name}' with {counted(rows, 'row')}?", abort=True, err=True)
        opened.drop_topic(name)
    if as_json:
        print_json({"topic": name, "dropped": True, "rows": rows})
    else:
        say(f"dropped topic '{name}' with {counted(rows, 'row')}")
