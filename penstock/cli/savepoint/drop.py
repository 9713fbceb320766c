"""`penstock savepoint drop`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, Yes, open_log
from penstock.cli.output import counted, print_json, say
from penstock.cli.savepoint.opened import SavepointName, now, opened_ledger, savepoints_of


@command
def drop(
    name: SavepointName,
    app: AppName = None,
    yes: Yes = False,
    log: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Forget a savepoint, and remove the files that only it needed."""
    from penstock.engine.ledger.garbage import Garbage

    with open_log(log) as opened:
        ledger = opened_ledger(log, app)
        if not yes:
            typer.confirm(f"Drop savepoint '{name}' of app '{ledger.app}'?", abort=True, err=True)
        savepoints_of(ledger, opened).drop(name)
        removed = Garbage(ledger).sweep(now())
    if as_json:
        print_json({"app": ledger.app, "savepoint": name, "dropped": True, "files_removed": removed.files})
    else:
        say(f"dropped savepoint '{name}' of app '{ledger.app}'; {counted(removed.files, 'file')} went with it")
