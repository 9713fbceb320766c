"""`penstock topic`: create, inspect, change and drop topics."""

from __future__ import annotations

import typer

from penstock.cli.topic.create import create
from penstock.cli.topic.describe import describe
from penstock.cli.topic.drop import drop
from penstock.cli.topic.evolve import evolve
from penstock.cli.topic.list import list_topics
from penstock.cli.topic.retain import retain

app = typer.Typer(help="Create, look at, change and drop topics.", no_args_is_help=True)
app.command("create")(create)
app.command("list")(list_topics)
app.command("describe")(describe)
app.command("evolve")(evolve)
app.command("retain")(retain)
app.command("drop")(drop)
