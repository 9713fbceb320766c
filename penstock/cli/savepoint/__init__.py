"""`penstock savepoint`: save the state of an app, and go back to it."""

from __future__ import annotations

import typer

from penstock.cli.savepoint.create import create
from penstock.cli.savepoint.drop import drop
from penstock.cli.savepoint.list import list_savepoints
from penstock.cli.savepoint.restore import restore

app = typer.Typer(help="Save an app as it is after an epoch, and go back to it.", no_args_is_help=True)
app.command("create", epilog="Example: penstock savepoint create before-upgrade --app shop")(create)
app.command("list", epilog="Example: penstock savepoint list --app shop")(list_savepoints)
app.command("restore", epilog="Example: penstock savepoint restore before-upgrade --app shop")(restore)
app.command("drop", epilog="Example: penstock savepoint drop before-upgrade --app shop")(drop)
