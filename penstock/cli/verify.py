"""`penstock verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import count_text, print_json, print_line, print_stderr, print_table
from penstock.cli.progress_bar import progress_bar
from penstock.errors import DamagedError
from penstock.units import format_size

if TYPE_CHECKING:
    from penstock.log import Log, Verified


@command
def verify(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="All topics without any.")] = None,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Check every stored byte: topics, catalogue, holds. Ends with status 1 if anything is damaged, and names it."""
    with open_log(log_path) as log:
        found = {name: _verify_topic(log, name) for name in topics or log.topics()}
        log_problems = log.verify()
    problems = log_problems + [problem for parts, damage in found.values() for problem in (*damage, *_problems(parts))]
    if as_json:
        documents = [_document(name, parts, damage) for name, (parts, damage) in found.items()]
        print_json({"topics": documents, "log": log_problems, "problems": len(problems)})
    else:
        _print_partitions(found)
        for problem in problems:
            print_stderr(f"problem: {problem}")
        print_line(
            "every byte is as it was written" if not problems else f"{count_text(len(problems), 'problem')} found"
        )
    if problems:
        raise typer.Exit(1)


def _verify_topic(log: Log, name: str) -> tuple[list[Verified], list[str]]:
    """What was found in the partitions of a topic, and the damage that prevented looking at them."""
    try:
        topic = log.topic(name)
    except DamagedError as error:
        return [], [error.message]
    try:
        total: int | None = sum(partition.bytes for partition in topic.statistics())
    except DamagedError:
        total = None
    with progress_bar(f"Verifying {name}", total, unit="bytes") as advance:
        return topic.verify(advance), []


def _problems(parts: list[Verified]) -> list[str]:
    return [problem for part in parts for problem in part.problems]


def _document(name: str, parts: list[Verified], damage: list[str]) -> dict[str, object]:
    return {"topic": name, "partitions": [asdict(part) for part in parts], "problems": [*damage, *_problems(parts)]}


def _print_partitions(found: dict[str, tuple[list[Verified], list[str]]]) -> None:
    print_table(
        ("topic", "partition", "segments", "frames", "rows", "size", "problems"),
        [
            (
                name,
                part.partition,
                part.segments,
                part.frames,
                part.rows,
                format_size(part.bytes),
                len(part.problems),
            )
            for name, (parts, _) in found.items()
            for part in parts
        ],
    )
