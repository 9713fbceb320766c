"""`penstock query`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, LogPath
from penstock.cli.output import json_value, plain_text
from penstock.schema.to_text import table_lines

if TYPE_CHECKING:
    from penstock.derive.views.answer import Answer


@command
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help='A query in DuckDB\'s SQL: "select * from my_view".')],
    app: AppName = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document: app, epoch, rows. Rows are streamed.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    log_path: LogPath = DEFAULT_LOG,
) -> None:
    """Query the views of an app with SQL, whether it is running or not.

    All views in a query are as of the same epoch.
    """
    from penstock.derive.views import query as run_query
    from penstock.paths import app_directory, chosen_app

    if as_json and as_csv:
        raise typer.BadParameter("choose --json or --csv")
    with run_query(app_directory(log_path, chosen_app(log_path, app)), sql) as answer:
        if as_json:
            lines = _json_lines(answer)
        else:
            lines = _csv_lines(answer) if as_csv else table_lines(answer.columns, iter(answer))
        for line in lines:
            sys.stdout.write(line + "\n")


def _json_lines(answer: Answer) -> Iterator[str]:
    yield f'{{"app": {_json(answer.app)}, "epoch": {answer.epoch}, "rows": ['
    before: str | None = None
    for row in answer.dicts():
        if before is not None:
            yield before + ","
        before = f"  {_json(row)}"
    if before is not None:
        yield before
    yield "]}"


def _json(value: object) -> str:
    return json.dumps(json_value(value), ensure_ascii=False)


def _csv_lines(answer: Answer) -> Iterator[str]:
    class Line:
        """The file that a csv.writer writes to; it keeps the last line."""

        text = ""

        def write(self, text: str) -> None:
            self.text = text

    line = Line()
    writer = csv.writer(line)  # with "\r\n" as its line end, it quotes a field that contains either character
    for row in chain([answer.columns], answer):
        writer.writerow(["" if value is None else plain_text(value) for value in row])
        yield line.text.removesuffix("\r\n")
