"""`penstock groups drop`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.groups.known import known_group
from penstock.cli.options import DEFAULT_LOG, AsJson, GroupName, LogPath, Yes, open_log
from penstock.cli.output import print_json, say


@command
def drop(group: GroupName, yes: Yes = False, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Forget a group and its committed offsets. It must have no living members."""
    with open_log(log) as opened:
        dropped = known_group(opened, group)
        topics = dropped.topics()
        if not yes:
            typer.confirm(f"Forget group '{group}', which reads {', '.join(topics)}?", abort=True, err=True)
        dropped.drop()
    if as_json:
        print_json({"group": group, "dropped": True, "topics": topics})
    else:
        say(f"dropped group '{group}'")
