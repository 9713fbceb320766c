"""`penstock produce`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.bad_lines import BadLines
from penstock.cli.command import command
from penstock.cli.input import Input, csv_options, find_input
from penstock.cli.new_topic import (
    NewTopic,
    confirm_guess,
    create_declared_topic,
    find_declared_topic,
    missing_topic_error,
    topics_in,
)
from penstock.cli.options import DEFAULT_LOG, AsJson, TopicName, Yes
from penstock.cli.output import count_text, print_json, print_line, print_stderr
from penstock.cli.promise import check_promise, make_promise, producer_id
from penstock.cli.transfer import Transfer

if TYPE_CHECKING:
    from penstock.capture.files.options import FileOptions
    from penstock.log import Log, Topic


class InputFormat(StrEnum):
    """How rows are written in the input."""

    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"


class TimeUnit(StrEnum):
    """What a number in a timestamp column counts."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


_READING, _NEW, _BAD = "How the input is read", "A topic that does not exist yet", "Bad rows"

File = Annotated[
    Path | None, typer.Option("--file", metavar="PATH", help="Read this file, also compressed, instead of stdin.")
]
Format = Annotated[
    InputFormat | None,
    typer.Option(
        "--format",
        help="json: one object per line. csv, tsv: with a header line. Without it, by the name of the file; else json.",
        rich_help_panel=_READING,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Take only these columns of the input.", rich_help_panel=_READING),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="What separates the fields of CSV: ';' or tab.", rich_help_panel=_READING),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header", help="The CSV has no header line: --columns names its fields.", rich_help_panel=_READING
    ),
]
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--null", metavar="TEXT", help="A text in CSV that means null; may be repeated.", rich_help_panel=_READING
    ),
]
Unit = Annotated[
    TimeUnit | None,
    typer.Option(help="What numbers in timestamp columns count since 1970.", rich_help_panel=_READING),
]
AppToDeclare = Annotated[
    str | None,
    typer.Option("--app", metavar="FILE", help="Create the topic as this program declares it.", rich_help_panel=_NEW),
]
Infer = Annotated[
    bool,
    typer.Option("--infer", help="Guess its schema from the data, show it, and ask.", rich_help_panel=_NEW),
]
Key = Annotated[str | None, typer.Option(metavar="A,B", help="With --infer: its key.", rich_help_panel=_NEW)]
Time = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="With --infer: when a row happened.", rich_help_panel=_NEW)
]
Partitions = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="With --infer: how many.", rich_help_panel=_NEW)
]
BatchRows = Annotated[int, typer.Option(metavar="N", min=1, help="Append at most this many rows at a time.")]
ProducerName = Annotated[
    str | None, typer.Option(metavar="NAME", help="A name for this input, so that a rerun stores nothing twice.")
]
PromisedTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="At the end, promise that nothing earlier will follow, so that windows close."),
]
Delete = Annotated[bool, typer.Option("--delete", help="The rows are keys, whose rows are to be deleted.")]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Count bad lines and continue. Without it, the first one ends the command.",
        rich_help_panel=_BAD,
    ),
]
BadFile = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Write bad lines here, as they are; implies --skip-bad.", rich_help_panel=_BAD),
]
LogFolder = Annotated[
    Path | None,
    typer.Option(
        "--log",
        envvar="PENSTOCK_LOG",
        metavar="PATH",
        help="The folder of the log; without it, the one of --app, or ./penstock-data.",
    ),
]


@command
def produce(
    topic: TopicName,
    file: File = None,
    producer: ProducerName = None,
    promise: PromisedTime = None,
    delete: Delete = False,
    batch_rows: BatchRows = 5000,
    format_: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    no_header: NoHeader = False,
    null: Nulls = None,
    time_unit: Unit = None,
    app: AppToDeclare = None,
    infer: Infer = False,
    key: Key = None,
    time: Time = None,
    partitions: Partitions = None,
    yes: Yes = False,
    skip_bad: SkipBad = False,
    bad_file: BadFile = None,
    log_path: LogFolder = None,
    as_json: AsJson = False,
) -> None:
    """Append rows from stdin or a file to a topic.

    With --producer every row is stored once: the log remembers how much of the input it has seen under this name. After
    a crash, run the same command with the same input again; what was stored is skipped, the rest is stored. The
    input may have grown in the meantime. Use another name for another input. Without --producer, a rerun after a bad
    line stores the rows before it a second time.

    In CSV, values are read by the topic's schema; an empty field is null. In CSV and JSON binary is base64, times are
    ISO 8601, and arrays, maps and structs are JSON. A line has at most 64 MiB.

    Examples:

    penstock produce orders --file orders.csv --app shop.py

    penstock produce trips --file trips.parquet --infer --key trip_id --time started --producer trips-2026

    tail -F app.log | penstock produce events --skip-bad
    """
    from penstock.capture.files.options import FileOptions

    names = _split(columns)
    new = NewTopic(tuple(name for name in _split(key) if name), time, partitions)
    _check_usage(app, infer, new, file, bad_file)
    source, actual_format = find_input(file, format_)
    csv = csv_options(actual_format, delimiter=delimiter, header=not no_header, nulls=tuple(null or ()), columns=names)
    options = FileOptions(csv, names, time_unit.value if time_unit else None, batch_rows, delete)
    if promise is not None:
        check_promise(topic, promise)
    source.check()
    with closing(source), _open_topic(topic, app, log_path, source, options, new if infer else None, yes=yes) as found:
        log, opened = found
        new.check(opened)
        transfer = Transfer(log, opened, producer, guessed=infer)
        with BadLines(bad_file) as bad:
            complete, promised = False, None
            try:
                _run(transfer, source, options, bad, skips_bad=skip_bad or bad_file is not None)
                if promise is not None:
                    promised = make_promise(log, topic, promise, [producer_id(log, producer) if producer else 0])
                complete = True
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            finally:
                _print_result(transfer, bad.count, complete=complete, promised=promised, as_json=as_json)


def _check_usage(app: str | None, infer: bool, new: NewTopic, file: Path | None, bad_file: Path | None) -> None:
    if app is not None and infer:
        raise typer.BadParameter("the topic is created by --app or by --infer, not by both")
    if new != NewTopic() and not infer:
        raise typer.BadParameter("--key, --time and --partitions are for a topic that --infer creates")
    if file and bad_file and bad_file.exists() and file.exists() and bad_file.samefile(file):
        raise typer.BadParameter("--bad-file cannot be the input itself")


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


@contextmanager
def _open_topic(
    name: str,
    app: str | None,
    log_path: Path | None,
    source: Input,
    options: FileOptions,
    new: NewTopic | None,
    *,
    yes: bool,
) -> Iterator[tuple[Log, Topic]]:
    """Open the topic, or create it: as the app declares it, or with `new` as the data look."""
    from penstock.log import Log

    node, folder = find_declared_topic(app, name, log_path) if app is not None else (None, log_path or DEFAULT_LOG)
    known = topics_in(folder)
    if node is None and name not in known and new is not None:
        guessed = source.guess_schema(options, name, new)
        schema = confirm_guess(name, guessed, new, yes=yes, can_ask=source.file is not None)
        with Log(folder) as log:
            yield log, log.create_topic(name, schema, settings=new.settings())
        return
    if node is None and name not in known:
        raise missing_topic_error(name, folder, known)
    with Log(folder, create=node is not None) as log:
        yield log, log.topic(name) if node is None else create_declared_topic(log, node)


def _run(transfer: Transfer, source: Input, options: FileOptions, bad: BadLines, *, skips_bad: bool) -> None:
    """Transfer the input, with a progress bar on a terminal unless the input is typed there."""
    from penstock.cli.progress_bar import progress_bar

    is_typed = source.file is None and sys.stdin.isatty()
    title = f"Producing {transfer.topic.name}"
    with progress_bar(title, source.size(), unit="bytes", wanted=not is_typed) as advance:
        counted = replace(options, on_bytes=source.counter(advance))
        transfer.run(source.open_source, counted, bad if skips_bad else None)


def _print_result(transfer: Transfer, bad: int, *, complete: bool, promised: str | None, as_json: bool) -> None:
    """Print what was acknowledged: as the result, or on stderr if the transfer was cut short."""
    skipped, before = transfer.skipped_rows, transfer.previous_record
    text = f"stored {count_text(transfer.stored, 'row')} in '{transfer.topic.name}'"
    if skipped:
        text += f"; {skipped:,} skipped: producer '{transfer.producer}' had stored up to record {before:,} before"
    if bad:
        text += f"; {count_text(bad, f'bad {transfer.place}')} left out"
    if promised:
        text += f"; promised: nothing earlier than {promised} will follow"
    if not complete:
        print_stderr(text + (f"; the last was {transfer.place} {transfer.last_line}" if transfer.last_line else ""))
    elif not as_json:
        print_line(text)
        if skipped and not transfer.stored:
            print_stderr("hint: use another name for another input")
    if as_json:
        counts = {"stored": transfer.stored, "repeated": skipped, "bad": bad, "last_line": transfer.last_line}
        print_json({"topic": transfer.topic.name, **counts, "promised": promised, "complete": complete})
