"""`penstock holds list`."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log, option_parser
from penstock.cli.output import count_text, print_json, print_line, print_stderr, print_table
from penstock.units import format_size, parse_size

if TYPE_CHECKING:
    from penstock.log import Kept

WarnAbove = Annotated[
    int,
    typer.Option(
        parser=option_parser(parse_size),
        envvar="PENSTOCK_HOLDS_WARN_ABOVE",
        metavar="SIZE",
        help="Warn about holders that keep more than this.",
    ),
]
_COLUMNS = ("holder", "keeps", "topic", "partition", "from", "until", "rows", "size", "since")
# What to do about a holder, by its kind.
_REMEDIES = {
    "app": "start the app, or forget it: penstock holds release {holder}",
    "savepoint": "drop the savepoint if nobody needs it: penstock savepoint drop {last} --app {first}",
    "group": "let the group continue to read, or drop it: penstock groups drop {first}",
    "hold": "if its owner is gone: penstock holds release {holder}",
}


@command
def list_holds(
    context: typer.Context,
    warn_above: WarnAbove = "100 MB",  # type: ignore[assignment]
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Show what is kept on disk, and for whom: rows that must stay as they are, and delete markers that an app, a
    savepoint or a group has not read yet.
    """
    if context.invoked_subcommand is not None:
        return
    with open_log(log_path) as log:
        found = log.kept()
    warnings = [*_size_warnings(found, warn_above), *_lost_row_warnings(found)]
    if as_json:
        print_json({"holds": [{"kind": _kind(kept.holder), **asdict(kept)} for kept in found], "warnings": warnings})
        return
    if found:
        print_table(_COLUMNS, [_row(kept) for kept in found])
    else:
        print_line(f"nothing is held in {log_path}")
    for warning in warnings:
        print_stderr(f"warning: {warning}")


def _row(kept: Kept) -> tuple[object, ...]:
    # A topic that was dropped may have a successor of the same name, of which nothing is held.
    topic = f"{kept.topic} (dropped)" if kept.dropped else kept.topic
    size = format_size(kept.bytes)
    return kept.holder, kept.keeps, topic, kept.partition, kept.start, kept.end, kept.rows, size, kept.since


def _kind(holder: str) -> str:
    kind, colon, _ = holder.partition(":")
    return kind if colon and kind in _REMEDIES else "hold"


def _size_warnings(found: list[Kept], limit: int) -> list[str]:
    warnings = []
    for holder, parts in groupby(sorted(found, key=lambda kept: kept.holder), key=lambda kept: kept.holder):
        kept = list(parts)
        size = sum(part.bytes for part in kept)
        if size > limit:
            since = f" since {kept[0].since}" if kept[0].since else ""
            rows = count_text(sum(part.rows for part in kept), "row")
            warnings.append(f"{holder} has kept {rows}, {format_size(size)},{since}; {_remedy(holder)}")
    return warnings


def _lost_row_warnings(found: list[Kept]) -> list[str]:
    return [
        f"{kept.holder} has not read {count_text(kept.lost, 'offset')} of topic '{kept.topic}' partition "
        f"{kept.partition} that retention has removed"
        for kept in found
        if kept.lost
    ]


def _remedy(holder: str) -> str:
    first, _, last = holder.partition(":")[2].partition(":")
    return _REMEDIES[_kind(holder)].format(holder=holder, first=first, last=last)
