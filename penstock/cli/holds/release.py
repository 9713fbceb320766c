"""`penstock holds release`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, Yes, open_log
from penstock.cli.output import print_json, print_line
from penstock.errors import DamagedError, DeclarationError

if TYPE_CHECKING:
    from penstock.engine.ledger.ledger import Ledger
    from penstock.log import Log


@command
def release(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The holder, as `penstock holds` shows it.")],
    yes: Yes = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Release a hold, whoever placed it. Its owner may then find the rows changed or gone.

    `app:NAME` forgets an app: it is stopped if it is running, and can only be started again with --rebuild.
    """
    kind, owner = name.split(":", 1) if ":" in name else ("hold", name)
    with open_log(log_path) as log:
        ledger = _ledger_of(log, owner.partition(":")[0]) if kind in ("app", "savepoint") else None
        _refuse_savepoints_and_groups(kind, owner, ledger)
        known = _is_known(log, name)
        if known and not yes:
            typer.confirm(_question(kind, owner, name), abort=True, err=True)
        if kind == "app" and known:
            from penstock.engine.ledger.registration import forget_app

            forget_app(log, ledger, owner)
        else:
            log.release(name)
    if as_json:
        print_json({"hold": name, "released": known})
    else:
        print_line(f"released '{name}'" if known else f"nothing is held by '{name}'")


def _is_known(log: Log, name: str) -> bool:
    try:
        return name in {hold.name for hold in log.holds()}
    except DamagedError:
        return True  # the damaged hold may be this one, and dropping it helps


def _question(kind: str, owner: str, name: str) -> str:
    if kind == "app":
        return f"Forget app '{owner}'? It is stopped if it is running, and can only be started again with --rebuild."
    return f"Release the hold '{name}'? Its owner may need the rows."


def _ledger_of(log: Log, app: str) -> Ledger | None:
    """The ledger of an app that has run; None if its folder is gone."""
    from penstock.engine.ledger.ledger import APP_NAME, Ledger
    from penstock.paths import app_directory

    directory = app_directory(log.path, app)
    return Ledger(directory) if (directory / APP_NAME).exists() else None


def _refuse_savepoints_and_groups(kind: str, owner: str, ledger: Ledger | None) -> None:
    """Raise DeclarationError for savepoints and groups: they are dropped by commands of their own."""
    if kind == "group":
        raise DeclarationError(
            f"group '{owner}': it has no hold; its committed offsets say what it needs",
            hint=f"drop the group: penstock groups drop {owner}",
        )
    if kind == "savepoint" and ledger is not None:
        from penstock.engine.ledger.registration import savepoint_hold
        from penstock.engine.ledger.savepoints import savepoint_names

        for savepoint in savepoint_names(ledger):
            if savepoint_hold(ledger.app, savepoint) == f"savepoint:{owner}":
                raise DeclarationError(
                    f"savepoint '{savepoint}' of app '{ledger.app}': it could not be restored without its hold",
                    hint=f"drop the savepoint: penstock savepoint drop {savepoint} --app {ledger.app}",
                )
