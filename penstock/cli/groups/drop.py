"""`penstock groups drop`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.groups.find import find_group
from penstock.cli.options import DEFAULT_LOG, AsJson, GroupName, LogPath, Yes, open_log
from penstock.cli.output import print_json, print_line


@command
def drop(group: GroupName, yes: Yes = False, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Drop a group and its committed offsets. It must have no living members."""
    with open_log(log_path) as log:
        dropped = find_group(log, group)
        topics = dropped.topics()
        if not yes:
            typer.confirm(f"Drop group '{group}', which reads {', '.join(topics)}?", abort=True, err=True)
        dropped.drop()
    if as_json:
        print_json({"group": group, "dropped": True, "topics": topics})
    else:
        print_line(f"dropped group '{group}'")
