"""`penstock capture remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.capture.find import CaptureName, FoundCapture, find_capture
from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, Yes
from penstock.cli.output import print_json, print_line
from penstock.errors import DeclarationError


@command
def remove(
    name: CaptureName = None,
    topics: Annotated[bool, typer.Option("--topics", help="Drop the topics with all rows, too.")] = False,
    yes: Yes = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Remove a capture, and what it has left in the database: slots, publications, triggers. Its topics stay."""
    with find_capture(log_path, name) as capture:
        if capture.folder.is_running():
            raise DeclarationError(
                f"capture '{capture.name}': it is running", hint="stop it first, with Ctrl-C or SIGTERM"
            )
        if not yes:
            what = " and its topics with all rows" if topics else ""
            typer.confirm(f"Remove capture '{capture.name}'{what}?", abort=True, err=True)
        dropped = _remove(capture, topics=topics)
    if as_json:
        print_json({"capture": capture.name, "removed": True, "topics": dropped})
    else:
        stay = "" if topics else f"; its topics stay: {', '.join(capture.declaration.topics.values())}"
        print_line(f"removed capture '{capture.name}'{stay}")


def _remove(capture: FoundCapture, *, topics: bool) -> list[str]:
    """Remove it everywhere; a repeat completes what was begun."""
    from penstock.capture.copy.position import CopyPosition
    from penstock.capture.run import writer_name

    with capture.database() as database:
        database.remove()
    if capture.log.position(writer_name(capture.name)) is not None:
        # A capture of this name would begin anew, rather than where the database no longer knows it.
        writer = capture.log.writer(writer_name(capture.name))
        writer.write([], CopyPosition().to_json())
        writer.close()
    found = [topic for topic in capture.declaration.topics.values() if topic in capture.log.topics()] if topics else []
    for topic in found:
        capture.log.drop_topic(topic)
    capture.folder.remove()
    return found
