"""Finding the app whose savepoints a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.ledger.ledger import Ledger
    from penstock.engine.ledger.savepoints import Savepoints
    from penstock.log import Log


def find_ledger(log: Path, app: str | None) -> Ledger:
    """The ledger of the named app, or of the only one on the log."""
    from penstock.engine.ledger.ledger import Ledger
    from penstock.paths import app_directory, chosen_app

    return Ledger(app_directory(log, chosen_app(log, app)))


def savepoints_of(ledger: Ledger, log: Log) -> Savepoints:
    """The savepoints of an app."""
    from penstock.engine.ledger.registration import Registration
    from penstock.engine.ledger.savepoints import Savepoints

    return Savepoints(ledger, Registration(log, ledger.app))
