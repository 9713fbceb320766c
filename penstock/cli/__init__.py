"""The command line. Each command has its own file; `topic`, `capture`, `groups`, `holds` and `savepoint` are folders.

Commands import what they need when they run, so that `penstock --help` is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import capture, groups, holds, savepoint, topic
from penstock.cli.compact import compact
from penstock.cli.doctor import doctor
from penstock.cli.erase import erase
from penstock.cli.expire import expire
from penstock.cli.explain import explain
from penstock.cli.interrupt import STOP_SIGNALS, end_by_signal
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

_EXAMPLES = """Examples:

penstock doctor                           can apps run on this machine?

penstock run shop.py                      run the app of shop.py, until Ctrl-C

penstock query "select * from revenue"    ask its views, also while it runs"""

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


@app.callback(epilog=_EXAMPLES)
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep every view of your data in step with one log."""


def _add(panel: str, name: str, function: Callable[..., None], example: str) -> None:
    app.command(name, rich_help_panel=panel, epilog=f"Example: {example}")(function)


# In the order of the journey.
_START, _APPS, _ANSWERS = "Get started", "Run apps", "Ask for answers"
_TOPICS, _CARE = "Fill and read topics", "Take care of a log"

_add(_START, "doctor", doctor, "penstock doctor --quick")
_add(_APPS, "run", run, "penstock run shop.py")
_add(_APPS, "status", status, "penstock status shop")
_add(_APPS, "plan", plan, "penstock plan shop.py")
_add(_APPS, "explain", explain, "penstock explain shop.py")
app.add_typer(savepoint.app, name="savepoint", rich_help_panel=_APPS)
_add(_ANSWERS, "query", query, 'penstock query "select * from revenue order by country"')
_add(_ANSWERS, "views", views, "penstock views")
app.add_typer(topic.app, name="topic", rich_help_panel=_TOPICS)
app.add_typer(capture.app, name="capture", rich_help_panel=_TOPICS)
_add(_TOPICS, "produce", produce, "penstock produce orders --file orders.csv")
_add(_TOPICS, "promise", promise, "penstock promise trips 2026-02-01")
_add(_TOPICS, "tail", tail, "penstock tail orders -f")
app.add_typer(groups.app, name="groups", rich_help_panel=_TOPICS)
_add(_CARE, "stats", stats, "penstock stats orders")
_add(_CARE, "verify", verify, "penstock verify")
app.add_typer(holds.app, name="holds", rich_help_panel=_CARE)
_add(_CARE, "compact", compact, "penstock compact customers")
_add(_CARE, "expire", expire, "penstock expire orders")
_add(_CARE, "erase", erase, "penstock erase customers --key 4711")
_add(_CARE, "repair", repair, "penstock repair --execute")


def main() -> None:
    """The entry point of the program `penstock`. Stopped by a signal, it ends by that signal: shells see 130 or 143."""
    try:
        app()
    except SystemExit as end:
        number = end.code - 128 if isinstance(end.code, int) else 0
        if number in STOP_SIGNALS:
            end_by_signal(number)
        raise
