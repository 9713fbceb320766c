"""`penstock savepoint restore`."""

from __future__ import annotations

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, SavepointName, Yes, open_log
from penstock.cli.output import instant_text, print_json, print_line
from penstock.cli.savepoint.find import find_ledger, savepoints_of
from penstock.units import now_microseconds


@command
def restore(
    name: SavepointName,
    app: AppName = None,
    yes: Yes = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Go back to a savepoint: the next start continues from there and reads again what has come since.

    An instance that is still running is stopped. Rows that the app has written to topics stay there.
    """
    from penstock.engine.ledger.ledger import instance_name

    with open_log(log_path) as log:
        ledger = find_ledger(log_path, app)
        savepoints = savepoints_of(ledger, log)
        chosen = savepoints.savepoint(name)
        if not yes:
            created = f"made at {instant_text(chosen.created)} after epoch {chosen.commit.epoch}"
            typer.confirm(f"Take app '{ledger.app}' back to savepoint '{name}', {created}?", abort=True, err=True)
        commit = savepoints.restore(
            name, lambda: log.writer(instance_name(ledger.app)).token, restored_at=now_microseconds()
        )
    if as_json:
        print_json({"app": ledger.app, "savepoint": name, "of_epoch": chosen.commit.epoch, "epoch": commit.epoch})
    else:
        print_line(
            f"restored savepoint '{name}' of app '{ledger.app}' as epoch {commit.epoch}; start the app to continue"
        )
