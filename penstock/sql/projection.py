"""The SELECT list and DISTINCT as `select`, `distinct`, or a group for each different row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.flow.names import quote, unquote
from penstock.flow.stream import Stream
from penstock.sql.clauses import Select, SelectItem
from penstock.sql.groups import ROW_COUNT
from penstock.sql.scope import Rows, Scope, name_like
from penstock.sql.text import Span, name_of


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result: its name, its expression over the rows so far, and the span that it is from."""

    name: str
    text: str
    span: Span | None = None


def star_columns(item: SelectItem, scope: Scope, *, columns_known: bool) -> list[OutputColumn] | None:
    """The columns of `*`, or of `t.*`; None if they are not known yet."""
    columns = scope.star
    if item.star_table is not None:
        alias = name_of(item.star_table)
        table = next((table for table in scope.tables if table.alias == alias), None)
        if table is None:
            known = ", ".join(table.alias for table in scope.tables if table.alias is not None) or "none"
            raise item.expression.refusal("select", f"there is no table '{alias}'; there are {known}")
        if table.merged:
            raise item.expression.refusal(
                "select",
                f"after USING there is only one '{min(table.merged)}' and not that of '{alias}' alone",
                "name the columns; or join with ON, and both are there",
            )
        columns = None if table.columns is None else tuple(table.columns.items())
    if not columns_known or columns is None:
        return None
    names = [name.lower() for name, _ in columns]
    twice = next((name for name, _ in columns if names.count(name.lower()) > 1), None)
    if twice is not None:
        raise item.expression.refusal(
            "select",
            f"'{item.expression}' would have two columns '{twice}'",
            f"list the columns, and rename one of these: b.{twice} AS other_{twice}",
        )
    return [OutputColumn(name, quote(joined_name), item.expression) for name, joined_name in columns]


def project(rows: Rows, outputs: Sequence[OutputColumn] | None, span: Span) -> Rows:
    """The columns of the list; the rows themselves, if they have these columns and no others."""
    if outputs is None or _is_unchanged(rows, outputs):
        return rows
    _check_names_differ(outputs)
    with span.declaring_here():
        return rows.select(**{output.name: output.text for output in outputs})


def apply_distinct(select: Select, rows: Rows, outputs: Sequence[OutputColumn] | None, scope: Scope) -> Rows:
    """DISTINCT: of a stream the first of the events that are equal, of a table one row for all that are equal."""
    if isinstance(rows, Stream):
        if select.distinct_on:
            return _apply_distinct_on(select, rows, outputs, scope)
        chosen = project(rows, outputs, select.span)
        assert isinstance(chosen, Stream)
        with select.span.declaring_here():
            return chosen.distinct(within=_within(select))
    _refuse_for_tables(select)
    if outputs is None:
        raise select.span.refusal("distinct", "the columns are not known after a map without a schema", "name them")
    _check_names_differ(outputs)
    names = [output.name for output in outputs]
    with select.span.declaring_here():
        groups = rows.group_by(**{output.name: output.text for output in outputs})
        return groups.agg(**{name_like(ROW_COUNT, names): "count(*)"}).select(*names)


def _within(select: Select) -> str | None:
    within = select.time_clauses.within
    return None if within is None else within.value


def _refuse_for_tables(select: Select) -> None:
    within = select.time_clauses.within
    for clause, spans in (("ON", select.distinct_on[:1]), ("WITHIN", () if within is None else (within.span,))):
        if spans:
            raise spans[0].refusal(
                "distinct",
                f"DISTINCT with {clause} is of streams, and this is a table",
                "QUALIFY ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1 chooses one row of several",
            )


def _apply_distinct_on(select: Select, rows: Stream, outputs: Sequence[OutputColumn] | None, scope: Scope) -> Rows:
    """The event time decides which event stays, so the list is applied first only if it has the time."""
    chosen = project(rows, outputs, select.span)
    assert isinstance(chosen, Stream)
    names = [_output_name(span, outputs or (), scope) for span in select.distinct_on]
    keeps_time = chosen.node.shape.time is not None or rows.node.shape.time is None
    if outputs is not None and keeps_time and None not in names:
        with select.span.declaring_here():
            return chosen.distinct(*(name for name in names if name is not None), within=_within(select))
    columns = [_row_column(span, outputs or (), scope) for span in select.distinct_on]
    with select.span.declaring_here():
        first = rows.distinct(*columns, within=_within(select))
    return project(first, outputs, select.span)


def _output_name(span: Span, outputs: Sequence[OutputColumn], scope: Scope) -> str | None:
    """The column of the list that is meant: the one of this name, or the one that is this column."""
    if len(span) == 1 and name_of(span.tokens[0]) in {output.name for output in outputs}:
        return name_of(span.tokens[0])
    column = scope.resolve_column(span, "distinct")
    return next((output.name for output in outputs if column is not None and output.text == quote(column)), None)


def _row_column(span: Span, outputs: Sequence[OutputColumn], scope: Scope) -> str:
    """The column of the rows that is meant."""
    named = [output.text for output in outputs if len(span) == 1 and output.name == name_of(span.tokens[0])]
    column = unquote(named[0]) if named else scope.resolve_column(span, "distinct")
    if column is None:
        raise span.refusal(
            "distinct",
            f"DISTINCT ON has names of columns; found '{span}'",
            "compute it in a query inside: FROM (SELECT *, ... AS name FROM ...)",
        )
    return column


def _is_unchanged(rows: Rows, outputs: Sequence[OutputColumn]) -> bool:
    same = all(quote(output.name) == output.text for output in outputs)
    return same and rows.columns == tuple(output.name for output in outputs)


def _check_names_differ(outputs: Sequence[OutputColumn]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen and output.span is not None:
            raise output.span.refusal(
                "select",
                f"two columns would have the name '{output.name}'",
                f"rename one of them: AS other_{output.name}",
            )
        seen.add(output.name.lower())
