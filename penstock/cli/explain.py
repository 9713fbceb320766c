"""`penstock explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import AsJson
from penstock.cli.output import print_json, say


@command
def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Python file that declares the app.")],
    app: Annotated[
        str | None, typer.Option("--app", metavar="NAME", help="Which app, if the file declares several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what an app does: its graph, and for each step what it remembers and for how long. Nothing is run."""
    from penstock.app import load_app
    from penstock.flow import explain as explaining

    plan = load_app(file, name=app).plan
    if as_json:
        print_json(explaining.document(plan))
    else:
        say(explaining.explain(plan))
