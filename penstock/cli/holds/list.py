"""`penstock holds`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from penstock.log import HeldRange


@command
def list_holds(context: typer.Context, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Show who holds which rows: compaction, retention and erasure leave those as they are."""
    if context.invoked_subcommand is not None:
        return
    with open_log(log) as opened:
        holds = opened.holds()
        ids = {opened.topic(name).description.id for name in opened.topics()}
    if as_json:
        print_json({"holds": [asdict(hold) for hold in holds]})
        return
    rows = [
        (hold.name, _topic_name(held, ids), held.partition, held.start, held.end, hold.placed)
        for hold in holds
        for held in hold.ranges
    ]
    if rows:
        print_table(("holder", "topic", "partition", "start", "end", "since"), rows)
    else:
        say(f"no rows are held in {log}")


def _topic_name(held: HeldRange, ids: set[str]) -> str:
    """A topic that was dropped may have a successor of its name, of which nothing is held."""
    return held.topic if held.topic_id in ids else f"{held.topic} (dropped)"
