"""`penstock holds`: what is kept on disk, and for whom."""

from __future__ import annotations

import typer

from penstock.cli.holds.list import list_holds
from penstock.cli.holds.release import release

app = typer.Typer(invoke_without_command=True)
app.callback()(list_holds)
app.command("list", epilog="Example: penstock holds list")(list_holds)
app.command("release", epilog="Example: penstock holds release app:shop")(release)
