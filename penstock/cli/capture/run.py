"""`penstock capture run`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.capture.output import CaptureOutput
from penstock.cli.command import command
from penstock.cli.interrupt import STOP_SIGNALS, end_by_signal
from penstock.cli.options import DEFAULT_LOG, LogPath, open_log, option_parser
from penstock.cli.output import print_stderr
from penstock.errors import DeclarationError
from penstock.secrets import masked_url
from penstock.units import parse_size

if TYPE_CHECKING:
    from penstock.capture.declaration import CaptureDeclaration
    from penstock.log import Log

Source = Annotated[
    str,
    typer.Argument(
        metavar="URL|NAME",
        help="The database, such as 'postgresql://app:${PASSWORD}@localhost/shop': variables of the environment are "
        "looked up when it connects. Or the name of a capture, to start it again.",
    ),
]
Tables = Annotated[list[str] | None, typer.Option("--table", metavar="TABLE", help="A table to capture.")]
Outboxes = Annotated[
    list[str] | None,
    typer.Option("--outbox", metavar="TABLE", help="A table of events, of which only inserted rows are captured."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TABLE=TOPIC", help="The topic of a table, if it is not called like the table."),
]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", metavar="TABLE=A,B", help="Capture only these columns of a table.")
]
AsText = Annotated[
    list[str] | None,
    typer.Option("--as-text", metavar="TABLE.COLUMN", help="Capture a column as the text that the database shows."),
]
MaxRetained = Annotated[
    int | None,
    typer.Option(
        parser=option_parser(parse_size),
        metavar="SIZE",
        help="Give up the place in the server's log rather than let it retain more for this capture.",
    ),
]


@command
def run(
    source: Source,
    table: Tables = None,
    outbox: Outboxes = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="By default, the name of the database.")] = None,
    topic: Topics = None,
    columns: Columns = None,
    as_text: AsText = None,
    partitions: Annotated[int, typer.Option(metavar="N", help="How many partitions new topics get.")] = 1,
    max_retained: MaxRetained = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is there that the database has now.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document whenever something changes.")] = False,
    log_path: LogPath = DEFAULT_LOG,
) -> None:
    """Copy tables of a database into topics, then follow their changes, until it is stopped.

    It resumes where it left off, however it ended. Tables that were not captured before are copied first; tables that
    are no longer named are no longer followed. The log is created if there is none.
    """
    from penstock.capture.run import run_capture

    with open_log(log_path, create=":" in source) as log:
        if ":" in source:
            given = _Options(table or [], outbox or [], topic or [], columns or [], as_text or [], partitions)
            declaration = given.declaration(source, name, max_retained)
            _warn_of_password(source)
        else:
            declaration = _stored(log, source, has_options=bool(table or outbox or topic or columns or as_text))
        stop = threading.Event()
        with CaptureOutput(declaration, as_json=as_json) as output, _stop_by_signal(stop, output) as received:
            run_capture(declaration, log, once=once, stop=stop, report=output.report)
    if received:
        raise typer.Exit(128 + received[0])


def _warn_of_password(url: str) -> None:
    if masked_url(url) != url:
        print_stderr(
            "warning: others on this machine see the password in the list of processes; put it into a variable of the "
            "environment and write '${NAME}' in its place, in single quotes"
        )


def _stored(log: Log, name: str, *, has_options: bool) -> CaptureDeclaration:
    """The capture of this name as it was declared."""
    from penstock.capture.declaration import load_declaration
    from penstock.capture.folder import CaptureFolder
    from penstock.paths import captures_folder, chosen_capture

    if has_options:
        raise DeclarationError(
            f"capture '{name}': tables and columns are declared together with the URL; found only the name",
            hint="give the URL and --name, with all tables",
        )
    declaration = load_declaration(CaptureFolder.of(log, chosen_capture(captures_folder(log.apps_folder), name)).path)
    if declaration is None:
        raise DeclarationError(f"capture '{name}': it is not declared", hint="give the URL and its tables")
    return declaration


class _Options:
    """The options that describe tables."""

    def __init__(
        self,
        tables: list[str],
        outboxes: list[str],
        topics: list[str],
        columns: list[str],
        as_text: list[str],
        partitions: int,
    ) -> None:
        self._outboxes = outboxes
        self._tables = [*tables, *outboxes]
        self._topics = self._by_table("--topic", topics)
        self._columns = self._by_table("--columns", columns)
        self._as_text = [self._split("--as-text", text, ".", "orders.note") for text in as_text]
        self._partitions = partitions

    def declaration(self, url: str, name: str | None, max_retained: int | None) -> CaptureDeclaration:
        from penstock.capture.declaration import CaptureDeclaration, CapturedTable, default_capture, default_topic

        tables = tuple(
            CapturedTable(
                table,
                self._topics.get(table, default_topic(table)),
                tuple(self._columns[table].split(",")) if table in self._columns else None,
                tuple(column for of_table, column in self._as_text if of_table == table),
                inserts_only=table in self._outboxes,
                partitions=self._partitions,
            )
            for table in self._tables
        )
        return CaptureDeclaration(name or default_capture(url), url, tables, max_retained)

    def _by_table(self, option: str, texts: list[str]) -> dict[str, str]:
        return dict(self._split(option, text, "=", "orders=shop_orders") for text in texts)

    def _split(self, option: str, text: str, mark: str, example: str) -> tuple[str, str]:
        table, found, value = text.rpartition(mark) if mark == "." else text.partition(mark)
        if not found or not value:
            raise typer.BadParameter(f"'{text}' should look like {example}", param_hint=option)
        if table not in self._tables:
            raise typer.BadParameter(f"'{table}' is none of the tables, {', '.join(self._tables)}", param_hint=option)
        return table, value


@contextmanager
def _stop_by_signal(stop: threading.Event, output: CaptureOutput) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM stop the capture after what it is writing; the second time, at once. Gives the signals."""
    received: list[int] = []

    def request_stop(number: int, frame: FrameType | None) -> None:
        if received:
            end_by_signal(number)
        received.append(number)
        output.stopping()
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, request_stop) for number in STOP_SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
