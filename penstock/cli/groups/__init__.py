"""`penstock groups`: who reads which topics, and how far."""

from __future__ import annotations

import typer

from penstock.cli.groups.drop import drop
from penstock.cli.groups.lag import lag
from penstock.cli.groups.list import list_groups
from penstock.cli.groups.reset import reset

app = typer.Typer(
    help="Consumer groups: see what they read and how far they are behind; move or drop them.", no_args_is_help=True
)
app.command("list", epilog="Example: penstock groups list")(list_groups)
app.command("lag", epilog="Example: penstock groups lag report")(lag)
app.command("reset", epilog='Example: penstock groups reset report orders --to "1 hour ago" --execute')(reset)
app.command("drop", epilog="Example: penstock groups drop report")(drop)
