"""What commands print: tables for people, JSON for programs. Light to import: it knows nothing of Arrow."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Literal

import typer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Wide enough that nothing is ever cut when the output goes to a file or another program.
_UNLIMITED_WIDTH = 10_000
_PLAIN_TEXT = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+")


def say(text: str = "") -> None:
    """Print a line of output."""
    typer.echo(text)


def tell(text: str) -> None:
    """Print a line about the work, on stderr."""
    typer.echo(text, err=True)


def print_json(document: object) -> None:
    """Print one JSON document."""
    say(json.dumps(plain(document), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under the names of their columns; numbers stand to the right, None is a dash."""
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
        say(line.rstrip())


def instant(moment: datetime | int) -> str:
    """A time as ISO 8601 in UTC, given as datetime or in microseconds since 1970."""
    if isinstance(moment, int):
        try:
            return instant(_EPOCH + timedelta(microseconds=moment))
        except OverflowError:
            return f"{far_time(moment, 'us')}Z"
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def far_time(count: int, unit: Literal["us", "D"]) -> str:
    """A time outside of the years 1 to 9999, which Python cannot hold, given in microseconds or days since 1970."""
    import numpy as np

    return str(np.datetime64(count, unit)).removesuffix(".000000")


def plain(value: object) -> object:
    """A value as JSON has it: times, dates and decimals as text, binary as base64."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(value, datetime):
        return instant(value) if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {_member_name(key): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def shown(value: object) -> str:
    """A value on one line for people: as it is where that is clear, in quotes where not."""
    if isinstance(value, str):
        return value if _PLAIN_TEXT.fullmatch(value) and value != "null" else json.dumps(value, ensure_ascii=False)
    simple = plain(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def counted(count: int, noun: str) -> str:
    """A number with its noun: '1 row', '2 rows', '10,000 rows'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _member_name(key: object) -> str:
    name = plain(key)
    return name if isinstance(name, str) else json.dumps(name)
