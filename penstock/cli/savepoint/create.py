"""`penstock savepoint create`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, open_log
from penstock.cli.output import print_json, say
from penstock.cli.savepoint.opened import SavepointName, described, now, opened_ledger, savepoints_of


@command
def create(name: SavepointName, app: AppName = None, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Keep an app as it is: its state, its position in the log and its views, at one epoch. It may be running.
    Files are not copied, but kept from now on."""
    with open_log(log) as opened:
        ledger = opened_ledger(log, app)
        made = savepoints_of(ledger, opened).create(name, created=now())
    if as_json:
        print_json({"app": ledger.app, **described(made)})
    else:
        say(f"created savepoint '{name}' of app '{ledger.app}' at epoch {made.commit.epoch}")
