"""`penstock groups list`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import print_json, print_line, print_table


@command
def list_groups(log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the groups: what they read, how many members they have, and how many offsets they are behind.

    Apps are not groups: `penstock status` lists them.
    """
    with open_log(log_path) as log:
        groups = [log.group(name) for name in log.groups()]
        rows = [
            (group.name, group.topics(), len(group.members()), sum(partition.lag for partition in group.lag()))
            for group in groups
        ]
    if as_json:
        names = ("group", "topics", "members", "lag")
        print_json({"groups": [dict(zip(names, row, strict=True)) for row in rows]})
    elif not rows:
        print_line(f"no groups in {log_path}")
    else:
        cells = [(name, ",".join(topics), members, lag) for name, topics, members, lag in rows]
        print_table(("group", "topics", "members", "lag"), cells)
