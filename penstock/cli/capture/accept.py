"""`penstock capture accept`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.capture.find import CaptureName, find_capture
from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath
from penstock.cli.output import print_json, print_line

Dropped = Annotated[
    list[str],
    typer.Option(
        "--dropped", metavar="TABLE.COLUMN", help="A column that the table has no longer: it is null from now on."
    ),
]


@command
def accept(
    dropped: Dropped, name: CaptureName = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False
) -> None:
    """Let a capture do without columns that were dropped from its tables. Earlier rows keep their values."""
    from penstock.capture.folder import Request

    with find_capture(log_path, name) as capture:
        for column in dropped:
            table, dot, bare = column.rpartition(".")
            if not dot or not bare:
                raise typer.BadParameter(f"'{column}' should look like orders.note", param_hint="--dropped")
            capture.declaration.checked_tables((table,))
        capture.folder.request(Request(dropped=tuple(dropped)))
        is_running = capture.folder.is_running()
    if as_json:
        print_json({"capture": capture.name, "dropped": dropped, "running": is_running})
        return
    when = "" if is_running else f"; start it: penstock capture run {capture.name}"
    print_line(f"capture '{capture.name}' does without {', '.join(dropped)}{when}")
