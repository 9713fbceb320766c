"""`penstock savepoint list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, AsJson, LogPath, open_log
from penstock.cli.output import instant_text, print_json, print_line, print_table
from penstock.cli.savepoint.find import find_ledger, savepoints_of
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.engine.ledger.savepoints import Savepoint


@command
def list_savepoints(app: AppName = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False) -> None:
    """List the savepoints of an app, the oldest first. Sizes include files that savepoints share."""
    with open_log(log_path) as log:
        ledger = find_ledger(log_path, app)
        savepoints = savepoints_of(ledger, log)
        oldest_first = sorted(
            (savepoints.savepoint(name) for name in savepoints.names()), key=lambda savepoint: savepoint.created
        )
    if as_json:
        print_json({"app": ledger.app, "savepoints": [savepoint_document(savepoint) for savepoint in oldest_first]})
    elif not oldest_first:
        print_line(f"no savepoints of app '{ledger.app}' in {log_path}")
    else:
        rows = [
            (savepoint.name, instant_text(savepoint.created), savepoint.commit.epoch, format_size(size_of(savepoint)))
            for savepoint in oldest_first
        ]
        print_table(("savepoint", "created", "epoch", "size"), rows)


def savepoint_document(savepoint: Savepoint) -> dict[str, object]:
    """A savepoint as JSON shows it."""
    return {
        "savepoint": savepoint.name,
        "created": instant_text(savepoint.created),
        "epoch": savepoint.commit.epoch,
        "files": len(list(savepoint.commit.runs())),
        "bytes": size_of(savepoint),
        "views": sorted(savepoint.commit.views),
    }


def size_of(savepoint: Savepoint) -> int:
    """The bytes of all files that a savepoint needs, including those that it shares."""
    return sum(run.bytes for run in savepoint.commit.runs())
