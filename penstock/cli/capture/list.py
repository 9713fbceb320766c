"""`penstock capture list`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import print_json, print_line, print_table


@command
def list_captures(log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the captures of a log."""
    from penstock.capture.declaration import load_declaration
    from penstock.capture.folder import CaptureFolder
    from penstock.paths import capture_names, captures_folder

    found = []
    with open_log(log_path) as log:
        for name in capture_names(captures_folder(log.apps_folder)):
            folder = CaptureFolder.of(log, name)
            declaration, status = load_declaration(folder.path), folder.load_status()
            if declaration is not None:
                tables = [table.table for table in declaration.tables]
                state = status.state if status is not None else "never run"
                found.append({"name": name, "state": state, "url": declaration.shown_url, "tables": tables})
    if as_json:
        print_json({"captures": found})
    elif found:
        columns = ("capture", "state", "source", "tables")
        print_table(columns, [(c["name"], c["state"], c["url"], ", ".join(c["tables"])) for c in found])
    else:
        print_line(f"nothing is captured into {log_path}")
