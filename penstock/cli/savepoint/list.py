"""`penstock savepoint list`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, open_log
from penstock.cli.output import instant, print_json, print_table, say
from penstock.cli.savepoint.opened import described, opened_ledger, savepoints_of, size_of
from penstock.units import format_size


@command
def list_savepoints(app: AppName = None, log: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the savepoints of an app, the oldest first. Sizes are of all files a savepoint needs, shared ones too."""
    with open_log(log) as opened:
        ledger = opened_ledger(log, app)
        savepoints = savepoints_of(ledger, opened)
        found = sorted((savepoints.savepoint(name) for name in savepoints.names()), key=lambda one: one.created)
    if as_json:
        print_json({"app": ledger.app, "savepoints": [described(one) for one in found]})
    elif not found:
        say(f"no savepoints of app '{ledger.app}' in {log}")
    else:
        rows = [(one.name, instant(one.created), one.commit.epoch, format_size(size_of(one))) for one in found]
        print_table(("savepoint", "created", "epoch", "size"), rows)
