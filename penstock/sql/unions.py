"""UNION ALL as the verb `union`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.flow.columns import column_of
from penstock.flow.names import quoted
from penstock.sql.clauses import Query
from penstock.sql.projection import Output, projected
from penstock.sql.scope import Rows
from penstock.sql.text import Span

_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "text": (pa.types.is_string,),
    "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "boolean": (pa.types.is_boolean,),
    "moment": (pa.types.is_timestamp, pa.types.is_date),
}


def united(query: Query, parts: Sequence[Rows]) -> Rows:
    """UNION ALL goes by the position of columns, and the verb by their names: those of the first query."""
    first = parts[0]
    others: list[Rows] = []
    for number, rows in enumerate(parts[1:], start=2):
        span = query.parts[number - 1].span
        if type(rows) is not type(first):
            raise span.refusal(
                "union",
                "streams are united with streams, and tables with tables; here one is a stream and one a table",
                "a table becomes a stream with changes(table), a stream a table with latest(stream, key)",
            )
        if first.columns is not None and rows.columns is not None:
            if len(first.columns) != len(rows.columns):
                found = f"the first has {len(first.columns)}, number {number} has {len(rows.columns)}"
                raise span.refusal("union", f"all queries of a UNION ALL have as many columns; {found}")
            _check_types(first, rows, span)
            names = [Output(new, quoted(old)) for new, old in zip(first.columns, rows.columns, strict=True)]
            rows = projected(rows, names, span)
        others.append(rows)
    with query.span.text.at(query.parts[1].span.at):
        return first.union(*others)  # type: ignore[arg-type]


def _check_types(first: Rows, rows: Rows, span: Span) -> None:
    """Spark would cast texts to numbers, which fails with the first text that is none."""
    for one, other in zip(first.columns or (), rows.columns or (), strict=True):
        kinds = _kind(first, one), _kind(rows, other)
        if None not in kinds and kinds[0] != kinds[1]:
            raise span.refusal(
                "union",
                f"columns that are united have the same type; '{one}' is a {kinds[0]}, '{other}' a {kinds[1]}",
                f"CAST({other} AS ...) AS {other}",
            )


def _kind(rows: Rows, name: str) -> str | None:
    """What the values are, where that is known."""
    column = column_of(rows.node, name)
    if column is None:
        return None
    return next((kind for kind, tests in _KINDS.items() if any(test(column.type) for test in tests)), None)
