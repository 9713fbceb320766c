"""What commands print: tables for people, JSON for programs. Light to import: it does not load Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from penstock.schema.to_text import instant_text as instant_text
from penstock.schema.to_text import json_value as json_value
from penstock.schema.to_text import plain_text as plain_text

if TYPE_CHECKING:
    from penstock.flow.plan import Plan

# Wide enough that nothing is ever truncated when the output goes to a file or another program.
_UNLIMITED_WIDTH = 10_000
_PLAIN_TEXT = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+")


def print_line(text: str = "") -> None:
    """Print a line of output on stdout."""
    typer.echo(text)


def print_stderr(text: str) -> None:
    """Print a line on stderr: progress, warnings and errors."""
    typer.echo(text, err=True)


def print_warnings(plan: Plan) -> None:
    """Print what a plan says that is probably not meant, on stderr."""
    from penstock.flow.warnings import plan_warnings

    for warning in plan_warnings(plan):
        print_stderr(str(warning))


def print_json(document: object) -> None:
    """Print one JSON document."""
    print_line(json.dumps(json_value(document), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their column names. Numbers are right-aligned; None is a dash."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        kinds = {type(row[number]) for row in cells} - {type(None)}
        table.add_column(name, justify="right" if kinds == {int} else "left", overflow="fold")
    for row in cells:
        table.add_row(*[Text("-" if cell is None else str(cell)) for cell in row])
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED_WIDTH
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print_line(line.rstrip())


def age_text(moment: datetime | int, now: int) -> str:
    """How long ago a time was, roughly: '3 minutes'. Times are datetimes or microseconds since 1970."""
    from penstock.units import format_duration

    microseconds = moment if isinstance(moment, int) else round(moment.timestamp() * 1_000_000)
    seconds = max(0.0, (now - microseconds) / 1_000_000)
    unit = next((unit for unit in (86_400, 3_600, 60) if seconds >= 2 * unit), 1)
    return format_duration(float(round(seconds / unit) * unit))


def value_text(value: object) -> str:
    """A value on one line for people: without quotes where that is unambiguous, with quotes otherwise."""
    if isinstance(value, str):
        return value if _PLAIN_TEXT.fullmatch(value) and value != "null" else json.dumps(value, ensure_ascii=False)
    return plain_text(value)


def count_text(count: int, noun: str) -> str:
    """A number with its noun: '1 row', '2 rows', '10,000 rows'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
