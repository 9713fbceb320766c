"""`penstock erase`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.keys import KEY_HELP
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, Yes, open_log, option_parser
from penstock.cli.output import count_text, print_json, print_line, value_text
from penstock.cli.progress_bar import progress_bar
from penstock.cli.rewrite_report import print_rewrite_report, rewrite_document
from penstock.errors import DeclarationError
from penstock.units import parse_duration

if TYPE_CHECKING:
    from penstock.engine.erasure import Copy
    from penstock.log import Log, Rewritten

# Everything was done, and copies of the rows may remain.
COPIES_REMAIN = 3

# A capture looks for what it is asked about once a second.
FORGET_SECONDS = 20.0


@command
def erase(
    name: TopicName,
    key: Annotated[list[str] | None, typer.Option(metavar="VALUE", help=KEY_HELP)] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Erase nothing; say what may remain of what was erased from the topic before."),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Wait this long for rows that are held: '5 minutes'.",
        ),
    ] = None,
    yes: Yes = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Remove every stored row of one key from a topic for good, and name every other place that may have a copy.

    Rows of the key are removed from the topic, from its late rows and from the dead rows of apps. What apps derived
    from them is not changed: the command lists views, state, savepoints and topics of sinks that may have a copy, each
    with the command that removes it. The status is 0 if no copy remains, and 3 if one may. Other rows keep their
    offsets.

    Waits for rows that somebody holds, and removes nothing if they are not released in time; see `penstock holds`.
    """
    from penstock.engine.erasure import find_copies_in_log

    if check == bool(key):
        raise DeclarationError(
            f"topic '{name}': give --key to erase rows, or --check to see what may remain of earlier erasures"
        )
    with open_log(log_path) as log:
        erased = {} if check else _erase(log, name, key or [], wait=wait, yes=yes, as_json=as_json)
        copies = [*_captures_with_copies(log, name), *find_copies_in_log(log, log.topic(name))]
    where = "" if log_path == DEFAULT_LOG else f" --log {log_path}"
    commands = [f"{copy.command}{where if copy.takes_log else ''}" for copy in copies]
    if as_json:
        found = zip(copies, commands, strict=True)
        remaining = [{"where": copy.where, "app": copy.app, "command": command} for copy, command in found]
        print_json({"topic": name, **_documents(name, erased), "copies": remaining})
    else:
        _print_copies(copies, commands, f"penstock erase {name} --check{where}")
    if copies:
        raise typer.Exit(COPIES_REMAIN)


def _erase(
    log: Log, name: str, given: list[str], *, wait: float | None, yes: bool, as_json: bool
) -> dict[str, list[Rewritten]]:
    """Erase the rows of a key; what was done to each topic, by name."""
    from penstock.capture.erasure import forget_earlier_rows
    from penstock.cli.keys import key_batch, parse_key, partition_of_key
    from penstock.engine.erasure import erase_key
    from penstock.log import ERASE_WAIT_SECONDS

    topic = log.topic(name)
    key = parse_key(topic, given)
    batch = key_batch(topic, key)
    text = ", ".join(f"{column}={value_text(value)}" for column, value in key.items())
    if not yes:
        typer.confirm(f"Erase all rows of {text} from '{name}'? They cannot be restored.", abort=True, err=True)
    with progress_bar(f"Erasing {text}", topic.statistics()[partition_of_key(topic, batch)].rows) as advance:
        erased = erase_key(log, topic, batch, progress=advance, wait=ERASE_WAIT_SECONDS if wait is None else wait)
        forget_earlier_rows(log, name, wait=FORGET_SECONDS)
    if as_json:
        return erased
    for erased_from, parts in erased.items():
        if any(part.rows_before != part.rows_after for part in parts):
            print_rewrite_report(f"erased {text} from", erased_from, parts, as_json=False)
        elif erased_from == name:
            print_line(f"no row of this key was stored: {text} in '{name}'")
    return erased


def _captures_with_copies(log: Log, name: str) -> list[Copy]:
    from penstock.capture.erasure import captures_that_remember
    from penstock.engine.erasure import Copy

    return [
        Copy(
            f"capture '{capture}', which was asked to forget the rows, and has not done so yet", "penstock capture list"
        )
        for capture in captures_that_remember(log, name)
    ]


def _documents(name: str, erased: dict[str, list[Rewritten]]) -> dict[str, object]:
    if not erased:
        return {}
    side_topics = [rewrite_document(topic, parts) for topic, parts in erased.items() if topic != name]
    return {**rewrite_document(name, erased[name]), "side_topics": side_topics}


def _print_copies(copies: list[Copy], commands: list[str], check: str) -> None:
    if not copies:
        print_line("no app of this log has a copy of an erased row")
        return
    print_line(f"copies may remain in {count_text(len(copies), 'place')}; run the commands in this order:")
    for copy, command_line in zip(copies, commands, strict=True):
        print_line(f"  {copy.where}")
        print_line(f"    {command_line}")
    print_line(f"then look again: {check}")
