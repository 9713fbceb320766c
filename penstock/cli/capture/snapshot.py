"""`penstock capture snapshot`."""

from __future__ import annotations

from penstock.cli.capture.find import CaptureName, ChosenTables, find_capture
from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath
from penstock.cli.output import print_json, print_line


@command
def snapshot(
    name: CaptureName = None, table: ChosenTables = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False
) -> None:
    """Copy tables again, while the capture continues. Rows that are the same stay as they are.

    A capture that runs begins at once; otherwise it does when it is started.
    """
    from penstock.capture.folder import Request

    with find_capture(log_path, name) as capture:
        tables = capture.declaration.checked_tables(tuple(table or ()))
        capture.folder.request(Request(snapshot=tables))
        is_running = capture.folder.is_running()
    if as_json:
        print_json({"capture": capture.name, "tables": list(tables), "running": is_running})
        return
    when = "now" if is_running else f"when the capture is started: penstock capture run {capture.name}"
    print_line(f"capture '{capture.name}' copies {', '.join(tables)} again {when}")
