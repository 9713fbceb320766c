"""`penstock savepoint drop`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, SavepointName, Yes, open_log
from penstock.cli.output import count_text, print_json, print_line
from penstock.cli.savepoint.find import find_ledger, savepoints_of
from penstock.units import now_microseconds


@command
def drop(
    name: SavepointName,
    app: AppName = None,
    yes: Yes = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Drop a savepoint, and remove the files that only it needed."""
    from penstock.engine.ledger.garbage import Garbage

    with open_log(log_path) as log:
        ledger = find_ledger(log_path, app)
        if not yes:
            typer.confirm(f"Drop savepoint '{name}' of app '{ledger.app}'?", abort=True, err=True)
        savepoints_of(ledger, log).drop(name)
        removed = Garbage(ledger).sweep(now_microseconds())
    if as_json:
        print_json({"app": ledger.app, "savepoint": name, "dropped": True, "files_removed": removed.files})
    else:
        print_line(f"dropped savepoint '{name}' of app '{ledger.app}' and {count_text(removed.files, 'file')}")
