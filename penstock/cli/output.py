"""What commands print: tables for people, JSON for programs. Light to import: it does not load Arrow."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import typer

from penstock.units import utc_datetime

# Wide enough that nothing is ever truncated when the output goes to a file or another program.
_UNLIMITED_WIDTH = 10_000
_PLAIN_TEXT = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+")


def print_line(text: str = "") -> None:
    """Print a line of output on stdout."""
    typer.echo(text)


def print_stderr(text: str) -> None:
    """Print a line on stderr: progress, warnings and errors."""
    typer.echo(text, err=True)


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


def instant_text(moment: datetime | int) -> str:
    """A time as ISO 8601 in UTC, given as a datetime or as microseconds since 1970."""
    if isinstance(moment, int):
        try:
            return instant_text(utc_datetime(moment))
        except OverflowError:
            from penstock.schema.to_python import far_time

            return f"{far_time(moment, 'us')}Z"
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def age_text(moment: datetime | int, now: int) -> str:
    """How long ago a time was, roughly: '3 minutes'. Times are datetimes or microseconds since 1970."""
    from penstock.units import format_duration

    microseconds = moment if isinstance(moment, int) else round(moment.timestamp() * 1_000_000)
    seconds = max(0.0, (now - microseconds) / 1_000_000)
    unit = next((unit for unit in (86_400, 3_600, 60) if seconds >= 2 * unit), 1)
    return format_duration(float(round(seconds / unit) * unit))


def json_value(value: object) -> object:
    """A value as JSON represents it: times, dates and decimals as text, binary as base64."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(value, datetime):
        return instant_text(value) if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {_member_name(key): json_value(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [json_value(item) for item in value]
    return str(value)


def value_text(value: object) -> str:
    """A value on one line for people: without quotes where that is unambiguous, with quotes otherwise."""
    if isinstance(value, str):
        return value if _PLAIN_TEXT.fullmatch(value) and value != "null" else json.dumps(value, ensure_ascii=False)
    return plain_text(value)


def plain_text(value: object) -> str:
    """A value as text without quotes: texts as they are, anything else as JSON."""
    simple = json_value(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def count_text(count: int, noun: str) -> str:
    """A number with its noun: '1 row', '2 rows', '10,000 rows'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _member_name(key: object) -> str:
    name = json_value(key)
    return name if isinstance(name, str) else json.dumps(name)
