"""`penstock groups lag`."""

from __future__ import annotations

from dataclasses import asdict

from penstock.cli.command import command
from penstock.cli.groups.find import find_group
from penstock.cli.options import DEFAULT_LOG, AsJson, GroupName, LogPath, open_log
from penstock.cli.output import print_json, print_table


@command
def lag(group: GroupName, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Show how far a group is behind: from its committed offset to the end, in every partition."""
    with open_log(log_path) as log:
        lags = find_group(log, group).lag()
    if as_json:
        total = sum(partition.lag for partition in lags)
        print_json({"group": group, "lag": total, "partitions": [asdict(partition) for partition in lags]})
    else:
        columns = ("topic", "partition", "committed", "end", "lag", "member")
        print_table(columns, [list(asdict(partition).values()) for partition in lags])
