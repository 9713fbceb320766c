"""A query as the verbs of Python: its clauses one after the other, in the order in which SQL evaluates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.flow.columns import column_of
from penstock.flow.expressions import aggregates_in, check_expression
from penstock.flow.names import RANK, quote, unquote
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.sql.clauses import Query, Relation, Select
from penstock.sql.conditions import all_of, conjuncts
from penstock.sql.groups import Groups, has_aggregates, make_groups
from penstock.sql.joins import JoinedRows, apply_join
from penstock.sql.projection import OutputColumn, apply_distinct, project, star_columns
from penstock.sql.scope import KnownResults, Result, Rows, UnboundedRank, find_result, require_rows, scope_of
from penstock.sql.substitute import fill_in_values, hide_aliases
from penstock.sql.text import Span, dotted_name, is_plain_name, name_of, split_at_commas
from penstock.sql.top import ResolvedRanking, as_ranking, find_rank_bound, find_ranking, resolve_ranking
from penstock.sql.windows import is_window_call
from penstock.suggest import closest

_HAVING_HINT = "a condition on an aggregate goes into HAVING"
_WINDOWS_OF_OTHER_SYSTEMS = frozenset({"tumble", "hop", "session", "cumulate", "window"})
_TABLE_FUNCTIONS = ["changes", "latest"]


def translate(query: Query, known: KnownResults) -> Result:
    """The rows of a query. `known` are the rows that it may read by name."""
    for name, inner in query.named:
        known = {**known, name: translate(inner, known)}
    results = [
        translate(part, known) if isinstance(part, Query) else _translate_select(part, known) for part in query.parts
    ]
    if len(results) == 1:
        return results[0]
    return _unite(query, [require_rows(result) for result in results])


# -- one SELECT -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _UngroupedRows:
    """The rows of a SELECT without GROUP BY."""

    joined: JoinedRows
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.joined.rows.columns or ()

    def with_aliases(self, aliases: Mapping[str, str]) -> _UngroupedRows:
        """These same rows, for expressions that may use aliases of the SELECT list."""
        return replace(self, aliases=aliases)

    def resolve(self, span: Span, what: str) -> str:
        own, aliases = hide_aliases(span, what, self.joined.scope, self.aliases)
        text = fill_in_values(span, what, self.joined.scope.resolve(own, what, aliases), aliases)
        with span.reading(what):
            return check_expression(text, self.joined.rows.columns, instead="aggregates go into the SELECT list")

    def resolve_column(self, span: Span, what: str) -> str | None:
        if len(span) == 1 and name_of(span.tokens[0]) in self.aliases:
            return unquote(self.aliases[name_of(span.tokens[0])])
        return self.joined.scope.resolve_column(span, what)

    def rows(self) -> Rows:
        return self.joined.rows


def _translate_select(select: Select, known: KnownResults) -> Result:
    """1. FROM and joins, 2. WHERE, 3. GROUP BY, 4. the list, 5. HAVING, 6. QUALIFY, 7. DISTINCT."""
    _check_time_clauses(select)
    joined = _from_and_where(select, known)  # 1, 2
    grouped = select.group_by is not None or has_aggregates(select, joined.scope)
    stage = make_groups(select, joined.rows, joined.scope) if grouped else _UngroupedRows(joined)  # 3
    if select.having is not None and not grouped:
        raise select.having.refusal("having", "HAVING needs GROUP BY or an aggregate", "a condition on rows is WHERE")
    _check_keep(select, joined, stage)
    rank = find_ranking(select)
    outputs = _output_columns(select, stage, joined)  # 4
    aliases = {
        output.name: output.text for output in outputs or () if output.span is None or as_ranking(output.span) is None
    }
    with_aliases = stage.with_aliases(aliases)
    having = None if select.having is None else with_aliases.resolve(select.having, "having")  # 5
    ranking = None if rank is None else resolve_ranking(rank, stage, aliases, joined.scope)
    conditions = () if rank is None else [with_aliases.resolve(condition, "qualify") for condition in rank.conditions]

    def finish(count: int | None) -> Rows:
        rows = stage.rows()
        if having is not None and select.having is not None:
            with select.having.declaring_here():
                rows = rows.where(having)
        rows = _apply_qualify(rows, ranking, count, conditions, select)  # 6
        if select.distinct:
            return apply_distinct(select, rows, outputs, joined.scope)  # 7
        return project(rows, outputs, select.span)

    if rank is not None and rank.count is None:
        return UnboundedRank(rank.name or RANK, rank.ranking.span, finish)
    return finish(None if rank is None else rank.count)


def _output_columns(select: Select, stage: _UngroupedRows | Groups, joined: JoinedRows) -> list[OutputColumn] | None:
    """The columns of the list; None for `*` over columns that are not known yet."""
    outputs: list[OutputColumn] | None = []
    for item in select.items:
        if item.is_star and isinstance(stage, Groups):
            raise item.expression.refusal("select", "'*' is not supported with GROUP BY", "name the columns")
        if item.is_star:
            columns = star_columns(item, joined.scope, columns_known=joined.rows.columns is not None)
            if columns is None and len(select.items) > 1:
                raise item.expression.refusal(
                    "select", "the columns of '*' are not known yet, after a map without a schema", "give map a schema"
                )
            outputs = None if columns is None or outputs is None else [*outputs, *columns]
            continue
        name = item.name
        if name is None:
            raise item.expression.refusal(
                "select", f"an expression needs a name; found '{item.expression}'", f"{item.expression} AS name"
            )
        if as_ranking(item.expression) is not None:
            text = RANK
        elif isinstance(stage, Groups):
            text = stage.add_item(item, name)
        else:
            column = stage.resolve_column(item.expression, "select")
            text = stage.resolve(item.expression, "select") if column is None else quote(column)
        assert outputs is not None
        outputs.append(OutputColumn(name, text, item.expression))
    return outputs


def _apply_qualify(
    rows: Rows, ranking: ResolvedRanking | None, count: int | None, conditions: Sequence[str], select: Select
) -> Rows:
    if ranking is None or count is None:
        return rows
    rows = ranking.top(rows, count)
    if not conditions:
        return rows
    with (select.qualify or select.span).declaring_here():
        return rows.where(all_of(conditions))


# -- FROM, joins and WHERE --------------------------------------------------------------------------------------------


def _from_and_where(select: Select, known: KnownResults) -> JoinedRows:
    joined, conditions = _read_from(select, known)
    if not conditions:
        return joined
    for condition in conditions:
        for call in aggregates_in(joined.scope.read_expression(condition, "where")):
            message = f"an aggregate is not allowed in WHERE; found {call.function}(...)"
            raise condition.refusal("where", message, _HAVING_HINT)
    rows = _UngroupedRows(joined)
    text = all_of([rows.resolve(condition, "where") for condition in conditions])
    with conditions[0].declaring_here():
        return JoinedRows(joined.rows.where(text), joined.scope, joined.timed)


def _read_from(select: Select, known: KnownResults) -> tuple[JoinedRows, list[Span]]:
    """The joined rows, and the conditions of WHERE that remain. One of them may have bounded the rank of a subquery."""
    conditions = conjuncts(select.where) if select.where else []
    source = _read_relation(select.source, known)
    if isinstance(source, UnboundedRank) and not select.joins:
        source, conditions = _bound_rank(source, conditions)
    elif select.where:
        conditions = [select.where]
    rows = require_rows(source)
    joined = JoinedRows(rows, scope_of(rows, select.source.name))
    for clause in select.joins:
        right = require_rows(_read_relation(clause.right, known))
        joined = apply_join(joined, clause, right, _keep_of_joins(select))
    return joined, conditions


def _bound_rank(source: UnboundedRank, conditions: list[Span]) -> tuple[Result, list[Span]]:
    """The rows up to the rank in one of the conditions, and the other conditions."""
    bound = find_rank_bound(conditions, source.rank)
    if bound is None or bound.ranking is not None:
        return source, conditions
    return source.with_bound(bound.count), [*bound.other_conditions]


def _read_relation(relation: Relation, known: KnownResults) -> Result:
    if not isinstance(relation.source, str):
        return translate(relation.source, known)
    if relation.arguments is None:
        return find_result(relation.source, known, relation.span)
    return _call_table_function(relation, relation.source.lower(), relation.arguments, known)


def _call_table_function(relation: Relation, function: str, arguments: Span, known: KnownResults) -> Rows:
    if function in _WINDOWS_OF_OTHER_SYSTEMS:
        raise relation.span.refusal(
            "from",
            f"windows are made in GROUP BY; found {function}(...) in FROM",
            "GROUP BY window(time, '10 seconds'), session_window(...) or sliding_window(...)",
        )
    if function not in _TABLE_FUNCTIONS:
        hint = closest(function, _TABLE_FUNCTIONS) or "make several rows of one in Python, with .map(...)"
        raise relation.span.refusal(
            "from", f"in FROM there are changes(table) and latest(stream, key); found {function}(...)", hint
        )
    names = [part for part in split_at_commas(arguments) if part]
    if not names or not all(map(is_plain_name, names)):
        raise relation.span.refusal(
            "from", f"{function}(...) takes names; found '{arguments}'", "put a query into WITH"
        )
    rows = require_rows(find_result(dotted_name(names[0]), known, names[0]))
    with relation.span.declaring_here():
        return _changes(rows, names, relation) if function == "changes" else _latest(rows, names, relation)


def _changes(rows: Rows, names: list[Span], relation: Relation) -> Stream:
    if not isinstance(rows, Table) or len(names) > 1:
        raise relation.span.refusal("from", f"changes(table) takes one table; found '{names[-1]}'")
    return rows.changes()


def _latest(rows: Rows, names: list[Span], relation: Relation) -> Table:
    if not isinstance(rows, Stream):
        raise relation.span.refusal("from", f"latest(stream, key) takes a stream; '{names[0]}' is a table")
    if len(names) == 1:
        raise relation.span.refusal("from", "latest(stream, key) needs the columns of the key; found none")
    return rows.latest(*(name_of(column.tokens[-1]) for column in names[1:]))


# -- UNION ALL --------------------------------------------------------------------------------------------------------

_TYPE_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "text": (pa.types.is_string,),
    "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "boolean": (pa.types.is_boolean,),
    "moment": (pa.types.is_timestamp, pa.types.is_date),
}


def _unite(query: Query, parts: Sequence[Rows]) -> Rows:
    """UNION ALL matches columns by position, the verb `union` by name: all parts get the names of the first."""
    first = parts[0]
    renamed: list[Rows] = []
    for number, rows in enumerate(parts[1:], start=2):
        span = query.parts[number - 1].span
        if type(rows) is not type(first):
            raise span.refusal(
                "union",
                "a stream cannot be united with a table",
                "a table becomes a stream with changes(table), a stream a table with latest(stream, key)",
            )
        if first.columns is not None and rows.columns is not None:
            if len(first.columns) != len(rows.columns):
                found = f"the first has {len(first.columns)}, number {number} has {len(rows.columns)}"
                raise span.refusal("union", f"all queries of a UNION ALL have as many columns; {found}")
            _check_union_types(first, rows, span)
            names = [OutputColumn(new, quote(old)) for new, old in zip(first.columns, rows.columns, strict=True)]
            rows = project(rows, names, span)
        renamed.append(rows)
    with query.parts[1].span.declaring_here():
        return first.union(*renamed)  # type: ignore[arg-type]


def _check_union_types(first: Rows, rows: Rows, span: Span) -> None:
    """Refuse to unite texts with numbers: Spark would cast, and fail at the first text that is not a number."""
    for name, united_name in zip(first.columns or (), rows.columns or (), strict=True):
        kinds = _type_kind(first, name), _type_kind(rows, united_name)
        if None not in kinds and kinds[0] != kinds[1]:
            raise span.refusal(
                "union",
                "columns that are united must have the same type; "
                f"'{name}' is a {kinds[0]}, '{united_name}' a {kinds[1]}",
                f"CAST({united_name} AS ...) AS {united_name}",
            )


def _type_kind(rows: Rows, name: str) -> str | None:
    """What kind of values a column has, if that is known."""
    column = column_of(rows.node, name)
    if column is None:
        return None
    return next((kind for kind, tests in _TYPE_KINDS.items() if any(test(column.type) for test in tests)), None)


# -- EMIT, LATE, KEEP, WITHIN -----------------------------------------------------------------------------------------


def _is_windowed(select: Select) -> bool:
    return any(map(is_window_call, select.group_by or ()))


def _keep_of_joins(select: Select) -> str | None:
    """With a window, KEEP belongs to the window."""
    keep = select.time_clauses.keep
    return None if keep is None or _is_windowed(select) else keep.value


def _check_time_clauses(select: Select) -> None:
    clauses = select.time_clauses
    for word, clause in (("EMIT", clauses.emit), ("LATE", clauses.late)):
        if clause is not None and not _is_windowed(select):
            raise clause.span.refusal(
                word.lower(), f"{word} is of windows, and there is none", "GROUP BY window(time, '10 seconds'), ..."
            )
    if clauses.within is not None and not select.distinct:
        raise clauses.within.span.refusal(
            "within",
            "WITHIN says how far DISTINCT looks back, and there is none",
            "the bound of a join goes into ON: b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR",
        )


def _check_keep(select: Select, joined: JoinedRows, stage: _UngroupedRows | Groups) -> None:
    keep = select.time_clauses.keep
    if keep is not None and not joined.timed and not (isinstance(stage, Groups) and stage.window):
        raise keep.span.refusal(
            "keep",
            "KEEP is of windows and of joins in time, and there is none",
            "without a time everything is kept forever",
        )
