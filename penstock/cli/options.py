"""The options that several commands share, and opening the log that they name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.errors import PenstockError
from penstock.units import parse_duration, parse_size

if TYPE_CHECKING:
    from penstock.log import Log

Value = TypeVar("Value")


def option_parser(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """A parser for the text of an option. Its errors are errors in usage."""

    def parse_option(text: str) -> Value:
        try:
            return parse(text)
        except PenstockError as error:
            raise typer.BadParameter(f"{error.message}; {error.hint}" if error.hint else error.message) from None

    return parse_option


DEFAULT_LOG = Path("./penstock-data")

LogPath = Annotated[
    Path,
    typer.Option("--log", envvar="PENSTOCK_LOG", metavar="PATH", help="The folder of the log."),
]
AppFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file that declares the app, in Python (.py) or SQL (.sql).")
]
ChosenApp = Annotated[
    str | None, typer.Option("--app", metavar="NAME", help="Which app, if the file declares several.")
]
FromOldest = Annotated[
    bool,
    typer.Option(
        "--from-oldest",
        help="Do without rows that retention has removed: continue, and build views, from the oldest rows that are "
        "left. The gap is recorded.",
    ),
]
AppName = Annotated[
    str | None, typer.Option("--app", metavar="NAME", help="The app; not needed where only one has run on the log.")
]
LogOfApp = Annotated[
    str | None,
    typer.Option(
        "--log", metavar="PATH|URL", help="The log, by its folder or its URL; without it, the one that the app names."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]
SavepointName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the savepoint.")]
OnlyPartition = Annotated[
    int | None, typer.Option("--partition", metavar="N", help="Only this partition; all of them without it.")
]
Retain = Annotated[
    float | None,
    typer.Option(parser=option_parser(parse_duration), metavar="DURATION", help="Keep rows this long: '7 days'."),
]
RetainBytes = Annotated[
    int | None,
    typer.Option(parser=option_parser(parse_size), metavar="SIZE", help="Keep about this much per partition: '1 GB'."),
]


def open_log(path: Path, *, create: bool = False) -> Log:
    """Open the log. Only `topic create` creates a new one."""
    from penstock.log import Log

    return Log(path, create=create)
