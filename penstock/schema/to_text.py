"""Python values as text: for people, for JSON, and as a table of lines. Light to import: it does not load Arrow."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain, islice

from penstock.units import utc_datetime

# How many rows decide the width of columns; the rows after them are printed as they come.
ROWS_TO_MEASURE = 1_000


def instant_text(moment: datetime | int) -> str:
    """A time as ISO 8601 in UTC, given as a datetime or as microseconds since 1970."""
    if isinstance(moment, int):
        try:
            return instant_text(utc_datetime(moment))
        except OverflowError:
            from penstock.schema.to_python import far_time

            return f"{far_time(moment, 'us')}Z"
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


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


def plain_text(value: object) -> str:
    """A value as text without quotes: texts as they are, anything else as JSON."""
    simple = json_value(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def _member_name(key: object) -> str:
    name = json_value(key)
    return name if isinstance(name, str) else json.dumps(name)


# -- tables -----------------------------------------------------------------------------------------------------------


def table_lines(columns: Iterable[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    """Rows under their column names. Numbers are right-aligned; null is a dash."""
    first = list(islice(rows, ROWS_TO_MEASURE))
    names = list(columns)
    cells = [[cell_text(value) for value in row] for row in first]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    right = [_is_number(column) for column in zip(*first, strict=True)] or [False] * len(names)
    yield _line(names, widths, right)
    for row in chain(cells, ([cell_text(value) for value in row] for row in rows)):
        yield _line(row, widths, right)


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    placed = zip(cells, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in placed).rstrip()


def _is_number(values: Iterable[object]) -> bool:
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def cell_text(value: object) -> str:
    """A value on one line of a table; null is a dash."""
    if value is None:
        return "-"
    text = plain_text(value)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)
