"""`penstock savepoint create`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, SavepointName, open_log
from penstock.cli.output import print_json, print_line
from penstock.cli.savepoint.find import find_ledger, savepoints_of
from penstock.cli.savepoint.list import savepoint_document
from penstock.units import now_microseconds


@command
def create(name: SavepointName, app: AppName = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """Save an app as it is: its state, its position in the log and its views, all of one epoch.

    The app may be running. Nothing is copied: the files that the savepoint needs are kept from now on.
    """
    with open_log(log_path) as log:
        ledger = find_ledger(log_path, app)
        created = savepoints_of(ledger, log).create(name, created=now_microseconds())
    if as_json:
        print_json({"app": ledger.app, **savepoint_document(created)})
    else:
        print_line(f"created savepoint '{name}' of app '{ledger.app}' at epoch {created.commit.epoch}")
