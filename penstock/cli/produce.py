"""`penstock produce`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import counted, print_json, say, tell
from penstock.errors import DeclarationError

if TYPE_CHECKING:
    from penstock.cli.feed import BadLines, Feed
    from penstock.cli.lines import Blocks


class Format(StrEnum):
    """How rows are written in the input."""

    JSON = "json"
    CSV = "csv"


InputFile = Annotated[Path | None, typer.Option("--file", metavar="PATH", help="Read this file instead of stdin.")]
InputFormat = Annotated[Format, typer.Option("--format", help="json: one object per line. csv: with a header line.")]
BatchRows = Annotated[int, typer.Option(metavar="N", min=1, help="Append at most this many rows at a time.")]
ProducerName = Annotated[
    str | None, typer.Option(metavar="NAME", help="A name for this input, so that a rerun stores nothing twice.")
]
Delete = Annotated[bool, typer.Option("--delete", help="The rows are keys, whose rows are to be deleted.")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Count bad lines and go on. Without it the first one ends the work.")
]
BadFile = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Write bad lines here, as they are; implies --skip-bad.")
]


@command
def produce(
    topic: TopicName,
    file: InputFile = None,
    format_: InputFormat = Format.JSON,
    batch_rows: BatchRows = 5000,
    producer: ProducerName = None,
    delete: Delete = False,
    skip_bad: SkipBad = False,
    bad_file: BadFile = None,
    log: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Append rows from stdin or a file to a topic.

    With --producer every row is stored once: the log remembers how much of the input it has seen under this name. After
    a crash, run the same command with the same input again; what was stored is passed over, the rest is stored. The
    input may have grown in the meantime. Use another name for another input.

    In CSV, values are read by the topic's schema; an empty field is null. In both formats binary is base64, times are
    ISO 8601, and arrays, maps and structs are JSON.
    """
    from penstock.cli.feed import BadLines, Feed, transfer

    if file and bad_file and bad_file.exists() and bad_file.samefile(file):
        raise typer.BadParameter("--bad-file cannot be the input itself")
    with open_log(log) as opened, _input(file) as stream:
        target = opened.topic(topic)
        feed = Feed(target, opened.producer(producer) if producer else None, deletes=delete)
        with BadLines(bad_file, skip=skip_bad) as bad:
            complete = False
            try:
                transfer(stream, feed, bad, batch_rows=batch_rows, csv=format_ is Format.CSV)
                complete = True
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            finally:
                _print_result(feed, bad, producer, complete=complete, as_json=as_json)


def _input(file: Path | None) -> AbstractContextManager[Blocks]:
    if file is None:
        return nullcontext(sys.stdin.buffer)  # type: ignore[arg-type]  # declared as BinaryIO, it is a BufferedReader
    try:
        return file.open("rb")
    except OSError as error:
        raise DeclarationError(f"{file}: it cannot be read ({error.strerror})") from error


def _print_result(feed: Feed, bad: BadLines, producer: str | None, *, complete: bool, as_json: bool) -> None:
    """What was acknowledged: as the result, or, when the work was cut short, on stderr."""
    text = f"stored {counted(feed.stored, 'row')} in '{feed.topic.name}'"
    if feed.passed_over:
        text += f"; {feed.passed_over} passed over: producer '{producer}' had come to record {feed.come_to} before"
    if bad.count:
        text += f"; {counted(bad.count, 'bad line')} left out"
    if not complete:
        tell(text + (f"; the last was line {feed.last_line}" if feed.last_line else ""))
    elif not as_json:
        say(text)
        if feed.passed_over and not feed.stored:
            tell("hint: use another name for another input")
    if as_json:
        counts = {"stored": feed.stored, "repeated": feed.passed_over, "bad": bad.count, "last_line": feed.last_line}
        print_json({"topic": feed.topic.name, **counts, "complete": complete})
