"""`penstock holds`: who needs which rows to stay as they are."""

from __future__ import annotations

import typer

from penstock.cli.holds.list import list_holds
from penstock.cli.holds.release import release

app = typer.Typer(invoke_without_command=True)
app.callback()(list_holds)
app.command("release")(release)
