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
app.command(
    "create",
    epilog="Example: penstock topic create orders --schema 'id long, at timestamp' --key id --time at",
)(create)
app.command("list", epilog="Example: penstock topic list")(list_topics)
app.command("describe", epilog="Example: penstock topic describe orders")(describe)
app.command(
    "evolve",
    epilog="Example: penstock topic evolve orders --schema 'id long, at timestamp, note string'",
)(evolve)
app.command("retain", epilog="Example: penstock topic retain orders --retain '7 days'")(retain)
app.command("drop", epilog="Example: penstock topic drop orders")(drop)
