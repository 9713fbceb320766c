"""`penstock tail`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.keys import KEY_HELP
from penstock.cli.options import DEFAULT_LOG, LogPath, OnlyPartition, TopicName, open_log
from penstock.cli.positions import POSITION_HELP, positions_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.cli.tail_rows import RowSelection, ShownRow
    from penstock.log import Topic

LAST_ROWS = 10


@command
def tail(
    name: TopicName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue as rows arrive, until Ctrl-C.")] = False,
    start: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help=f"Where to begin: {POSITION_HELP}.")
    ] = None,
    partition: OnlyPartition = None,
    key: Annotated[list[str] | None, typer.Option(metavar="VALUE", help=f"Only rows of one key. {KEY_HELP}")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", metavar="N", min=0, help="With --from: end after N rows. Else: begin with the last N."
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns, in this order.")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="A JSON object per line: partition, offset, appended_at, deleted, version (if versioned), row.",
        ),
    ] = False,
    log_path: LogPath = DEFAULT_LOG,
) -> None:
    """Show rows of a topic: the last 10, or from a position on.

    A line is partition:offset, the time at which the row was appended, and the columns.
    """
    from penstock.cli.tail_rows import RowSelection, json_line, text_line

    with open_log(log_path) as log:
        topic = log.topic(name)
        selection = RowSelection.from_options(topic, key=key or [], partition=partition, columns=columns)
        printer = _Printer(json_line if as_json else text_line, limit if start is not None else None)
        with suppress(KeyboardInterrupt):
            _show(topic, selection, printer, start=start, last=LAST_ROWS if limit is None else limit, follow=follow)


def _show(
    topic: Topic, selection: RowSelection, printer: _Printer, *, start: str | None, last: int, follow: bool
) -> None:
    """Print the stored rows, then new rows as they arrive."""
    from penstock.cli.tail_rows import last_rows, rows_between

    ends = {number: end for number, end in topic.ends().items() if number in selection.partitions}
    if start is None:
        printer.print(last_rows(topic, selection, ends, count=last))
    else:
        printer.print(rows_between(topic, selection, positions_in(topic, start, list(ends)), ends))
    if not follow or printer.full or not ends:
        return
    reader = topic.reader(ends, partitions=list(ends), columns=selection.read_columns)
    try:
        while not printer.full:
            for batch in reader.poll(None):
                printer.print(selection.rows_of(batch))
    finally:
        reader.close()


class _Printer:
    """Prints rows up to a limit, and flushes after each batch."""

    def __init__(self, line: Callable[[ShownRow], str], limit: int | None) -> None:
        self._line = line
        self._left = limit

    @property
    def full(self) -> bool:
        return self._left == 0

    def print(self, rows: Iterable[ShownRow]) -> None:
        for row in rows:
            if self.full:
                break
            sys.stdout.write(self._line(row) + "\n")
            if self._left is not None:
                self._left -= 1
        sys.stdout.flush()
