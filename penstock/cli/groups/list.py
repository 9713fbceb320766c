"""`penstock groups list`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import print_json, print_table, say


@command
def list_groups(log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the groups: what they read, how many members they have, and how many offsets they are behind."""
    with open_log(log) as opened:
        groups = [opened.group(name) for name in opened.groups()]
        rows = [
            (group.name, group.topics(), len(group.members()), sum(one.lag for one in group.lag())) for group in groups
        ]
    if as_json:
        names = ("group", "topics", "members", "lag")
        print_json({"groups": [dict(zip(names, row, strict=True)) for row in rows]})
    elif not rows:
        say(f"no groups in {log}")
    else:
        shown = [(name, ",".join(topics), members, lag) for name, topics, members, lag in rows]
        print_table(("group", "topics", "members", "lag"), shown)
