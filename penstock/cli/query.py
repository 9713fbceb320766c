"""`penstock query`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AppName, LogPath
from penstock.cli.output import json_value, plain_text

if TYPE_CHECKING:
    from penstock.derive.views.answer import Answer, Row

# How many rows decide the width of columns; the rows after them are printed as they come.
ROWS_TO_MEASURE = 1_000


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

    Example: penstock query "select country, revenue from totals order by revenue desc limit 5"
    """
    from penstock.derive.views import query as run_query
    from penstock.paths import app_directory, chosen_app

    if as_json and as_csv:
        raise typer.BadParameter("choose --json or --csv")
    with run_query(app_directory(log_path, chosen_app(log_path, app)), sql) as answer:
        if as_json:
            lines = _json_lines(answer)
        else:
            lines = _csv_lines(answer) if as_csv else _table_lines(answer.columns, iter(answer))
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


def _table_lines(columns: Iterable[str], rows: Iterator[Row]) -> Iterator[str]:
    """Rows under their column names. Numbers are right-aligned; null is a dash."""
    first = list(islice(rows, ROWS_TO_MEASURE))
    names = list(columns)
    cells = [[_cell(value) for value in row] for row in first]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    right = [_is_number(column) for column in zip(*first, strict=True)] or [False] * len(names)
    yield _line(names, widths, right)
    for row in chain(cells, ([_cell(value) for value in row] for row in rows)):
        yield _line(row, widths, right)


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    placed = zip(cells, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in placed).rstrip()


def _is_number(values: Iterable[object]) -> bool:
    from decimal import Decimal

    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = plain_text(value)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)
