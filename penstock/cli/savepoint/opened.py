"""What the savepoint commands share: their options, and finding the app they are about."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.engine.ledger.ledger import Ledger
    from penstock.engine.ledger.savepoints import Savepoint, Savepoints
    from penstock.log import Log

SavepointName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the savepoint.")]


def opened_ledger(log: Path, app: str | None) -> Ledger:
    """The ledger of the app that was named, or of the only one."""
    from penstock.engine.ledger.ledger import Ledger
    from penstock.paths import app_directory, chosen_app

    return Ledger(app_directory(log, chosen_app(log, app)))


def savepoints_of(ledger: Ledger, log: Log) -> Savepoints:
    from penstock.engine.ledger.registration import Registration
    from penstock.engine.ledger.savepoints import Savepoints

    return Savepoints(ledger, Registration(log, ledger.app))


def described(savepoint: Savepoint) -> dict[str, object]:
    """A savepoint as JSON shows it."""
    from penstock.cli.output import instant

    return {
        "savepoint": savepoint.name,
        "created": instant(savepoint.created),
        "epoch": savepoint.commit.epoch,
        "files": len(list(savepoint.commit.runs())),
        "bytes": size_of(savepoint),
        "views": sorted(savepoint.commit.views),
    }


def size_of(savepoint: Savepoint) -> int:
    """Of all files it needs, those it shares with others too."""
    return sum(run.bytes for run in savepoint.commit.runs())


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000
