"""The SELECT list and DISTINCT as `select`, `distinct`, or a group of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.flow.names import quoted, unquoted
from penstock.flow.stream import Stream
from penstock.sql.clauses import Item, Select
from penstock.sql.groups import ROW_COUNT
from penstock.sql.scope import Rows, Scope, name_like
from penstock.sql.text import Span, name_of


@dataclass(frozen=True)
class Output:
    """A column of the result: its name, what it is over the rows so far, and where it was said."""

    name: str
    text: str
    span: Span | None = None


def listed(item: Item, scope: Scope, unknown: bool) -> list[Output] | None:
    """The columns of `*`, or of `t.*`; None if they are not known yet."""
    columns = scope.star
    if item.star_of is not None:
        alias = name_of(item.star_of)
        part = next((part for part in scope.parts if part.alias == alias), None)
        if part is None:
            there = ", ".join(part.alias for part in scope.parts if part.alias is not None) or "none"
            raise item.expression.refusal("select", f"there is no table '{alias}'; there are {there}")
        if part.lost:
            raise item.expression.refusal(
                "select",
                f"behind USING there is one '{min(part.lost)}', and not that of '{alias}' alone",
                "name the columns; or join with ON, and both are there",
            )
        columns = None if part.columns is None else tuple(part.columns.items())
    if unknown or columns is None:
        return None
    names = [name.lower() for name, _ in columns]
    twice = next((name for name, _ in columns if names.count(name.lower()) > 1), None)
    if twice is not None:
        raise item.expression.refusal(
            "select",
            f"'{item.expression}' would have two columns '{twice}'",
            f"name the columns, and one of these otherwise: b.{twice} AS other_{twice}",
        )
    return [Output(name, quoted(actual), item.expression) for name, actual in columns]


def projected(rows: Rows, outputs: Sequence[Output] | None, span: Span) -> Rows:
    """The columns of the list; the rows as they are, if they have these and no others."""
    if outputs is None or _as_they_are(rows, outputs):
        return rows
    _check_twice(outputs)
    with span.text.at(span.at):
        return rows.select(**{output.name: output.text for output in outputs})


def distinct(select: Select, rows: Rows, outputs: Sequence[Output] | None, scope: Scope) -> Rows:
    """DISTINCT: of a stream the first event of those that are equal, of a table a row for all that are."""
    if isinstance(rows, Stream):
        if select.distinct_on:
            return _distinct_on(select, rows, outputs, scope)
        chosen = projected(rows, outputs, select.span)
        assert isinstance(chosen, Stream)
        with select.span.text.at(select.span.at):
            return chosen.distinct(within=_within(select))
    _refuse_of_tables(select)
    if outputs is None:
        raise select.span.refusal("distinct", "the columns are not known behind a map without a schema", "name them")
    _check_twice(outputs)
    names = [output.name for output in outputs]
    with select.span.text.at(select.span.at):
        groups = rows.group_by(**{output.name: output.text for output in outputs})
        return groups.agg(**{name_like(ROW_COUNT, names): "count(*)"}).select(*names)


def _within(select: Select) -> str | None:
    return None if select.trailing.within is None else select.trailing.within[0]


def _refuse_of_tables(select: Select) -> None:
    within = select.trailing.within
    for clause, at in (("ON", select.distinct_on[:1]), ("WITHIN", () if within is None else (within[1],))):
        if at:
            raise at[0].refusal(
                "distinct",
                f"DISTINCT with {clause} is of streams, and this is a table",
                "QUALIFY ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1 chooses one row of several",
            )


def _distinct_on(select: Select, rows: Stream, outputs: Sequence[Output] | None, scope: Scope) -> Rows:
    """The event time decides which event stays, so the list comes first only if the time is in it."""
    chosen = projected(rows, outputs, select.span)
    assert isinstance(chosen, Stream)
    listed = [_listed(span, outputs or (), scope) for span in select.distinct_on]
    timed = chosen.node.shape.time is not None or rows.node.shape.time is None
    if outputs is not None and timed and None not in listed:
        with select.span.text.at(select.span.at):
            return chosen.distinct(*(name for name in listed if name is not None), within=_within(select))
    columns = [_column(span, outputs or (), scope) for span in select.distinct_on]
    with select.span.text.at(select.span.at):
        first = rows.distinct(*columns, within=_within(select))
    return projected(first, outputs, select.span)


def _listed(span: Span, outputs: Sequence[Output], scope: Scope) -> str | None:
    """The column of the list that is meant: the one of this name, or the one that is this column."""
    if len(span) == 1 and name_of(span.tokens[0]) in {output.name for output in outputs}:
        return name_of(span.tokens[0])
    column = scope.column(span, "distinct")
    return next((output.name for output in outputs if column is not None and output.text == quoted(column)), None)


def _column(span: Span, outputs: Sequence[Output], scope: Scope) -> str:
    """The column of the rows that is meant."""
    named = [output.text for output in outputs if len(span) == 1 and output.name == name_of(span.tokens[0])]
    column = unquoted(named[0]) if named else scope.column(span, "distinct")
    if column is None:
        raise span.refusal(
            "distinct",
            f"DISTINCT ON has names of columns; found '{span}'",
            "compute it in a query inside: FROM (SELECT *, ... AS name FROM ...)",
        )
    return column


def _as_they_are(rows: Rows, outputs: Sequence[Output]) -> bool:
    same = all(quoted(output.name) == output.text for output in outputs)
    return same and rows.columns == tuple(output.name for output in outputs)


def _check_twice(outputs: Sequence[Output]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen and output.span is not None:
            raise output.span.refusal(
                "select",
                f"two columns would have the name '{output.name}'",
                f"name one otherwise: AS other_{output.name}",
            )
        seen.add(output.name.lower())
