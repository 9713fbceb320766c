"""`penstock explain`."""

from __future__ import annotations

from penstock.cli.command import command
from penstock.cli.options import AppFile, AsJson, ChosenApp
from penstock.cli.output import print_json, print_line


@command
def explain(
    file: AppFile,
    app: ChosenApp = None,
    as_json: AsJson = False,
) -> None:
    """Show what an app does: its graph, and for each step what it remembers and for how long. Nothing is run."""
    from penstock.app import load_app
    from penstock.flow import explain as explaining

    plan = load_app(file, name=app).plan
    if as_json:
        print_json(explaining.document(plan))
    else:
        print_line(explaining.explain(plan))
