"""A query as the verbs of Python: its clauses, one after the other, in the order in which SQL gives them meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.flow.expressions import aggregates_in, check_expression
from penstock.flow.names import RANK, quoted, unquoted
from penstock.sql.aliases import with_aliases, with_values
from penstock.sql.clauses import Query, Select
from penstock.sql.conditions import conjuncts, together
from penstock.sql.groups import Groups, groups_of, has_aggregates
from penstock.sql.joins import Joined
from penstock.sql.projection import Output, distinct, listed, projected
from penstock.sql.scope import Known, Ranked, Result, Rows, complete
from penstock.sql.sources import read_rows
from penstock.sql.text import Span, name_of
from penstock.sql.top import Ranking, Resolved, bound_in, ranking_in, resolved, same_ranking
from penstock.sql.unions import united

_HAVING = "a condition on an aggregate stands in HAVING"
_WINDOW_FUNCTIONS = ("window", "session_window", "sliding_window")


def translated(query: Query, known: Known) -> Result:
    """The rows of a query."""
    for name, inner in query.named:
        known = {**known, name: translated(inner, known)}
    results = [translated(part, known) if isinstance(part, Query) else _selected(part, known) for part in query.parts]
    if len(results) == 1:
        return results[0]
    return united(query, [complete(result) for result in results])


# -- one SELECT -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plain:
    """Rows that are not grouped."""

    joined: Joined
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.joined.rows.columns or ()

    def named(self, aliases: Mapping[str, str]) -> _Plain:
        """These same rows, for expressions that may use the names of the list."""
        return replace(self, aliases=aliases)

    def text(self, span: Span, what: str) -> str:
        own, aliases = with_aliases(span, what, self.joined.scope, self.aliases)
        text = with_values(span, what, self.joined.scope.text(own, what, aliases), aliases)
        with span.declaring(what):
            return check_expression(text, self.joined.rows.columns, instead="aggregates stand in the SELECT list")

    def column(self, span: Span, what: str) -> str | None:
        if len(span) == 1 and name_of(span.tokens[0]) in self.aliases:
            return unquoted(self.aliases[name_of(span.tokens[0])])
        return self.joined.scope.column(span, what)

    def rows(self) -> Rows:
        return self.joined.rows


@dataclass(frozen=True)
class _Rank:
    """The ranking of a SELECT: which it is, whether the list has it and under which name, and its bound, if said."""

    ranking: Ranking
    name: str | None
    listed: bool
    count: int | None
    others: tuple[Span, ...]


def _selected(select: Select, known: Known) -> Result:
    """1. FROM and joins, 2. WHERE, 3. GROUP BY, 4. the list, 5. HAVING, 6. QUALIFY, 7. DISTINCT."""
    _check_trailing(select)
    joined = _filtered(select, known)  # 1, 2
    grouped = select.group is not None or has_aggregates(select, joined.scope)
    stage = groups_of(select, joined.rows, joined.scope) if grouped else _Plain(joined)  # 3
    if select.having is not None and not grouped:
        raise select.having.refusal("having", "HAVING needs GROUP BY or an aggregate", "a condition on rows is WHERE")
    _check_keep(select, joined, stage)
    rank = _rank(select)
    outputs = _outputs(select, stage, joined)  # 4
    aliases = {one.name: one.text for one in outputs or () if one.span is None or ranking_in(one.span) is None}
    behind = stage.named(aliases)
    having = None if select.having is None else behind.text(select.having, "having")  # 5
    ordered = None if rank is None else _ordered(rank, stage, aliases, joined)
    others = [] if rank is None else [behind.text(one, "qualify") for one in rank.others]

    def finished(count: int | None) -> Rows:
        rows = stage.rows()
        if having is not None and select.having is not None:
            with select.span.text.at(select.having.at):
                rows = rows.where(having)
        rows = _ranked(rows, ordered, count, others, select)  # 6
        return (
            distinct(select, rows, outputs, joined.scope) if select.distinct else projected(rows, outputs, select.span)
        )  # 7

    if rank is not None and rank.count is None:
        return Ranked(rank.name or RANK, rank.ranking.span, finished)
    return finished(None if rank is None else rank.count)


def _filtered(select: Select, known: Known) -> Joined:
    joined, conditions = read_rows(select, known, translated, _keep_of_joins(select))
    if not conditions:
        return joined
    for condition in conditions:
        for call in aggregates_in(joined.scope.read(condition, "where")):
            raise condition.refusal("where", f"an aggregate cannot stand in WHERE; found {call.function}(...)", _HAVING)
    plain = _Plain(joined)
    text = together([plain.text(condition, "where") for condition in conditions])
    with select.span.text.at(conditions[0].at):
        return Joined(joined.rows.where(text), joined.scope, joined.timed)


def _outputs(select: Select, stage: _Plain | Groups, joined: Joined) -> list[Output] | None:
    """The columns that the list says; None for `*` over columns that are not known yet."""
    outputs: list[Output] | None = []
    for item in select.items:
        if item.star and isinstance(stage, Groups):
            raise item.expression.refusal("select", "'*' is not there behind GROUP BY", "name the columns")
        if item.star:
            found = listed(item, joined.scope, joined.rows.columns is None)
            if found is None and len(select.items) > 1:
                raise item.expression.refusal(
                    "select", "the columns of '*' are not known yet, behind a map without a schema", "give map a schema"
                )
            outputs = None if found is None or outputs is None else [*outputs, *found]
            continue
        name = item.name
        if name is None:
            raise item.expression.refusal(
                "select", f"an expression needs a name; found '{item.expression}'", f"{item.expression} AS name"
            )
        if ranking_in(item.expression) is not None:
            text = RANK
        elif isinstance(stage, Groups):
            text = stage.output(item, name)
        else:
            column = stage.column(item.expression, "select")
            text = stage.text(item.expression, "select") if column is None else quoted(column)
        assert outputs is not None
        outputs.append(Output(name, text, item.expression))
    return outputs


# -- ranks ------------------------------------------------------------------------------------------------------------


def _rank(select: Select) -> _Rank | None:
    """The one ranking that the list and QUALIFY have."""
    listed = [(item, found) for item in select.items if (found := ranking_in(item.expression)) is not None]
    if len(listed) > 1:
        raise listed[1][1].span.refusal("select", "there is one ranking in a SELECT", "rank again in a query around it")
    item, ranking = listed[0] if listed else (None, None)
    if item is not None and item.alias is None:
        raise item.expression.refusal("select", "a rank needs a name", f"{item.expression} AS position")
    name = None if item is None else item.alias
    if select.qualify is None:
        return None if ranking is None else _Rank(ranking, name, True, None, ())
    bound = bound_in(conjuncts(select.qualify), name)
    chosen = None if bound is None else bound.ranking or ranking
    if bound is not None and chosen is not None:
        if ranking is not None and not same_ranking(chosen, ranking):
            raise bound.condition.refusal(
                "qualify", "there is one ranking in a SELECT", "rank again in a query around it"
            )
        return _Rank(chosen, name, ranking is not None, bound.count, bound.others)
    raise select.qualify.refusal(
        "qualify",
        f"QUALIFY bounds a rank; found '{select.qualify}'",
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= n",
    )


def _ordered(rank: _Rank, stage: _Plain | Groups, aliases: Mapping[str, str], joined: Joined) -> Resolved:
    """The ranking over the columns of the rows; in the list, names are columns first."""
    if rank.listed:
        among = [part.columns for part in joined.scope.parts]
        aliases = {
            name: text
            for name, text in aliases.items()
            if all(columns is not None and name not in columns for columns in among)
        }
    return resolved(rank.ranking, stage.named(aliases), stage.columns)


def _ranked(rows: Rows, ranking: Resolved | None, count: int | None, others: Sequence[str], select: Select) -> Rows:
    if ranking is None or count is None:
        return rows
    rows = ranking.top(rows, count)
    if not others:
        return rows
    with select.span.text.at((select.qualify or select.span).at):
        return rows.where(together(others))


# -- EMIT, LATE, KEEP, WITHIN -----------------------------------------------------------------------------------------


def _windowed(select: Select) -> bool:
    return any(
        span.keywords[:1] and span.keywords[0] in _WINDOW_FUNCTIONS and len(span) > 1 for span in select.group or ()
    )


def _keep_of_joins(select: Select) -> str | None:
    """With a window, KEEP is the window's."""
    return None if select.trailing.keep is None or _windowed(select) else select.trailing.keep[0]


def _check_trailing(select: Select) -> None:
    said = select.trailing
    for word, clause in (("EMIT", said.emit), ("LATE", said.late)):
        if clause is not None and not _windowed(select):
            raise clause[1].refusal(
                word.lower(), f"{word} is of windows, and there is none", "GROUP BY window(time, '10 seconds'), ..."
            )
    if said.within is not None and not select.distinct:
        raise said.within[1].refusal(
            "within",
            "WITHIN says how far DISTINCT looks back, and there is none",
            "the bound of a join stands in ON: b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR",
        )


def _check_keep(select: Select, joined: Joined, stage: _Plain | Groups) -> None:
    keep = select.trailing.keep
    if keep is not None and not joined.timed and not (isinstance(stage, Groups) and stage.window):
        raise keep[1].refusal(
            "keep",
            "KEEP is of windows and of joins in time, and there is none",
            "without a time everything is kept for ever",
        )
