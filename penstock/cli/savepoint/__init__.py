"""`penstock savepoint`: save the state of an app, and go back to it."""

from __future__ import annotations

import typer

from penstock.cli.savepoint.create import create
from penstock.cli.savepoint.drop import drop
from penstock.cli.savepoint.list import list_savepoints
from penstock.cli.savepoint.restore import restore

app = typer.Typer(help="Keep an app as it is after an epoch, and go back to it.", no_args_is_help=True)
app.command("create", epilog="Example: penstock savepoint create before-upgrade")(create)
app.command("list", epilog="Example: penstock savepoint list")(list_savepoints)
app.command("restore", epilog="Example: penstock savepoint restore before-upgrade")(restore)
app.command("drop", epilog="Example: penstock savepoint drop before-upgrade")(drop)
