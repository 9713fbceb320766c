"""`penstock savepoint restore`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, Yes, open_log
from penstock.cli.output import instant, print_json, say
from penstock.cli.savepoint.opened import SavepointName, now, opened_ledger, savepoints_of


@command
def restore(
    name: SavepointName,
    app: AppName = None,
    yes: Yes = False,
    log: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Go back to a savepoint: the app goes on from there when it is next started, and reads again what came since.
    An instance that still runs is stopped. Rows that the app has written into topics stay there."""
    from penstock.engine.ledger.ledger import instance_name

    with open_log(log) as opened:
        ledger = opened_ledger(log, app)
        savepoints = savepoints_of(ledger, opened)
        chosen = savepoints.savepoint(name)
        if not yes:
            made = f"made at {instant(chosen.created)} after epoch {chosen.commit.epoch}"
            typer.confirm(f"Take app '{ledger.app}' back to savepoint '{name}', {made}?", abort=True, err=True)
        commit = savepoints.restore(name, lambda: opened.producer(instance_name(ledger.app)).epoch, restored_at=now())
    if as_json:
        print_json({"app": ledger.app, "savepoint": name, "of_epoch": chosen.commit.epoch, "epoch": commit.epoch})
    else:
        say(f"restored savepoint '{name}' of app '{ledger.app}' as epoch {commit.epoch}; start the app to go on")
