"""`penstock capture`: copy tables of a database into topics, and follow their changes."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from penstock.cli.capture.accept import accept
from penstock.cli.capture.list import list_captures
from penstock.cli.capture.remove import remove
from penstock.cli.capture.run import run
from penstock.cli.capture.snapshot import snapshot
from penstock.cli.capture.status import status
from penstock.cli.capture.verify import verify


class _RunByDefault(TyperGroup):
    """`penstock capture URL ...` is `penstock capture run URL ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_command = bool(args) and args[0] in self.commands
        if not is_command and any(":" in argument for argument in args):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault, help="Copy tables of a database into topics, and follow their changes.", no_args_is_help=True
)
app.command("run", epilog="Example: penstock capture run sqlite:///shop.db --table orders")(run)
app.command("status", epilog="Example: penstock capture status shop")(status)
app.command("list", epilog="Example: penstock capture list")(list_captures)
app.command("snapshot", epilog="Example: penstock capture snapshot shop --table orders")(snapshot)
app.command("accept", epilog="Example: penstock capture accept shop --dropped orders.note")(accept)
app.command("verify", epilog="Example: penstock capture verify shop")(verify)
app.command("remove", epilog="Example: penstock capture remove shop")(remove)
