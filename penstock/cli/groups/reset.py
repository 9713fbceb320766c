"""`penstock groups reset`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, GroupName, LogPath, OnlyPartition, TopicName, open_log
from penstock.cli.output import print_json, print_line, print_stderr, print_table
from penstock.cli.positions import POSITION_HELP


@command
def reset(
    group: GroupName,
    topic: TopicName,
    to: Annotated[str, typer.Option(metavar="POSITION", help=f"Where it continues: {POSITION_HELP}.")],
    partition: OnlyPartition = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without this, only the plan is shown.")] = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of a group, which must have no living members.

    Only shows the plan without --execute.
    """
    from penstock.cli.positions import positions_in
    from penstock.suggest import closest

    with open_log(log_path) as log:
        moved = log.group(group)
        known = log.groups()
        moves = moved.plan_reset(topic, positions_in(log.topic(topic), to, None if partition is None else [partition]))
        if execute:
            moved.reset(moves)
    new = group not in known
    if as_json:
        print_json({"group": group, "new": new, "executed": execute, "moves": [asdict(move) for move in moves]})
        return
    if new:
        near = closest(group, known)
        print_line(f"group '{group}' is new" + (f"; {near}" if near else ""))
    rows = [(move.topic, move.partition, move.committed, move.target) for move in moves]
    print_table(("topic", "partition", "committed", "to"), rows)
    if execute:
        print_line(f"group '{group}' was {'created' if new else 'moved'}")
    else:
        print_stderr("nothing was changed; add --execute to do this")
