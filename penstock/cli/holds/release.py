"""`penstock holds release`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, Yes, open_log
from penstock.cli.output import print_json, say
from penstock.errors import DamagedError


@command
def release(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the hold.")],
    yes: Yes = False,
    log: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Drop a hold, whoever placed it. Its owner may then find the rows changed or gone."""
    with open_log(log) as opened:
        try:
            known = name in {hold.name for hold in opened.holds()}
        except DamagedError:
            known = True  # dropping it may be the way out
        if known and not yes:
            typer.confirm(f"Drop the hold '{name}'? Its owner may need the rows.", abort=True, err=True)
        opened.release(name)
    if as_json:
        print_json({"hold": name, "released": known})
    else:
        say(f"released '{name}'" if known else f"nothing is held by '{name}'")
