"""`penstock erase`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.keys import KEY_HELP
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, Yes, open_log, option_parser
from penstock.cli.output import print_line, value_text
from penstock.cli.progress_bar import progress_bar
from penstock.cli.rewrite_report import print_rewrite_report
from penstock.units import parse_duration


@command
def erase(
    name: TopicName,
    key: Annotated[list[str], typer.Option(metavar="VALUE", help=KEY_HELP)],
    wait: Annotated[
        float | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Wait so long for rows that are held: '5 minutes'.",
        ),
    ] = None,
    yes: Yes = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Remove every stored row of one key from the topic's files, for good. Other rows keep their offsets.

    Waits for rows that somebody holds, and removes nothing if they are not released in time; see `penstock holds`.
    """
    from penstock.cli.keys import key_batch, parse_key, partition_of_key
    from penstock.log import ERASE_WAIT_SECONDS

    with open_log(log_path) as log:
        topic = log.topic(name)
        erased = parse_key(topic, key)
        partition = partition_of_key(topic, key_batch(topic, erased))
        text = ", ".join(f"{column}={value_text(value)}" for column, value in erased.items())
        if not yes:
            typer.confirm(f"Erase all rows of {text} from '{name}'? They cannot be restored.", abort=True, err=True)
        with progress_bar(f"Erasing {text}", topic.statistics()[partition].rows) as advance:
            parts = topic.erase(erased, progress=advance, wait=ERASE_WAIT_SECONDS if wait is None else wait)
    if not as_json and all(part.rows_before == part.rows_after for part in parts):
        print_line(f"no row of this key was stored: {text} in '{name}'")
    else:
        print_rewrite_report(f"erased {text} from", name, parts, as_json=as_json)
