"""The command line. Each command has its own file; `topic`, `groups`, `holds` and `savepoint` are folders of commands.

Commands import what they need when they run, so that `penstock --help` is fast.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import groups, holds, savepoint, topic
from penstock.cli.compact import compact
from penstock.cli.erase import erase
from penstock.cli.expire import expire
from penstock.cli.explain import explain
from penstock.cli.output import print_line
from penstock.cli.plan import plan
from penstock.cli.produce import produce
from penstock.cli.promise import promise
from penstock.cli.query import query
from penstock.cli.repair import repair
from penstock.cli.run import run
from penstock.cli.stats import stats
from penstock.cli.status import status
from penstock.cli.tail import tail
from penstock.cli.verify import verify
from penstock.cli.views import views

__all__ = ["app", "main"]

app = typer.Typer(
    name="penstock",
    help="Keep every view of your data in step with one log.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_line(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Keep every view of your data in step with one log."""


app.command("run")(run)
app.command("status")(status)
app.command("query")(query)
app.command("views")(views)
app.command("plan")(plan)
app.command("explain")(explain)
app.add_typer(savepoint.app, name="savepoint")
app.add_typer(topic.app, name="topic")
app.command("produce")(produce)
app.command("promise")(promise)
app.command("tail")(tail)
app.add_typer(groups.app, name="groups")
app.add_typer(holds.app, name="holds")
app.command("compact")(compact)
app.command("expire")(expire)
app.command("erase")(erase)
app.command("verify")(verify)
app.command("repair")(repair)
app.command("stats")(stats)


def main() -> None:
    """The entry point of the program `penstock`."""
    app()
