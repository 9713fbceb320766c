"""ROW_NUMBER() and RANK() with a bound as the verb `top`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.flow.plan import Ties
from penstock.sql.clauses import Select
from penstock.sql.conditions import as_comparison, conjuncts
from penstock.sql.reader import TokenReader
from penstock.sql.scope import Rows, Scope, unused_name
from penstock.sql.text import (
    Span,
    closing_parenthesis,
    is_name,
    name_of,
    normalised,
    split_at_commas,
    without_parentheses,
)

_FUNCTIONS: dict[str, Ties] = {"row_number": "break", "rank": "keep"}
_UNSUPPORTED = ("dense_rank", "ntile", "percent_rank", "cume_dist")
_FORM = "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)"


@dataclass(frozen=True)
class Ranking:
    """A ranking as it was written: `span` is all of it, up to the parenthesis that closes OVER."""

    span: Span
    ties: Ties
    groups: tuple[Span, ...]
    order: tuple[Span, ...]

    def is_same(self, ranking: Ranking) -> bool:
        return normalised(self.span.tokens) == normalised(ranking.span.tokens)


def as_ranking(span: Span) -> Ranking | None:
    """The ranking that an expression is; None if it is anything else."""
    span = without_parentheses(span)
    end = closing_parenthesis(span.tokens, 1) if span.keywords[1:2] == ("(",) else None
    if end is None or span.keywords[end + 1 : end + 2] != ("over",):
        return None
    function = span.keywords[0]
    if function in _UNSUPPORTED:
        hint = "RANK() counts rows that are equal, ROW_NUMBER() tells them apart"
        raise span.refusal("over", f"{function.upper()}() is not supported", hint)
    if function not in _FUNCTIONS or closing_parenthesis(span.tokens, end + 2) != len(span) - 1:
        return None
    groups, order = _parse_over(span.cut(end + 3, -1))
    return Ranking(span, _FUNCTIONS[function], groups, order)


def _parse_over(span: Span) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The expressions of PARTITION BY and of ORDER BY."""
    reader = TokenReader(span, "over")
    groups: tuple[Span, ...] = ()
    if reader.accept("partition", "by"):
        groups = tuple(split_at_commas(reader.expression(_is_order_by)))
    reader.expect("order", "by", hint=_FORM)
    order = reader.expression(_is_frame)
    if not reader.at_end:
        raise reader.refusal("a rank is among all rows of its group: leave out what follows ORDER BY", _FORM)
    return groups, tuple(split_at_commas(order))


def _is_order_by(span: Span, number: int) -> bool:
    return span.keywords[number : number + 2] == ("order", "by")


def _is_frame(span: Span, number: int) -> bool:
    return number > 0 and span.keywords[number] in ("rows", "range", "groups")


# -- the ranking of a SELECT ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectRanking:
    """The ranking of a SELECT.

    `name` is its alias and `in_list` whether it is in the SELECT list. `count` is how many ranks QUALIFY keeps, None if
    it says nothing; `conditions` are its other conditions.
    """

    ranking: Ranking
    name: str | None
    in_list: bool
    count: int | None
    conditions: tuple[Span, ...]


def find_ranking(select: Select) -> SelectRanking | None:
    """The one ranking that the list and QUALIFY have."""
    in_list = [(item, found) for item in select.items if (found := as_ranking(item.expression)) is not None]
    if len(in_list) > 1:
        raise in_list[1][1].span.refusal(
            "select", "there is one ranking in a SELECT", "rank again in a query around it"
        )
    item, ranking = in_list[0] if in_list else (None, None)
    if item is not None and item.alias is None:
        raise item.expression.refusal("select", "a rank needs a name", f"{item.expression} AS position")
    name = None if item is None else item.alias
    if select.qualify is None:
        return None if ranking is None else SelectRanking(ranking, name, True, None, ())
    bound = find_rank_bound(conjuncts(select.qualify), name)
    chosen = None if bound is None else bound.ranking or ranking
    if bound is not None and chosen is not None:
        if ranking is not None and not chosen.is_same(ranking):
            raise bound.condition.refusal(
                "qualify", "there is one ranking in a SELECT", "rank again in a query around it"
            )
        return SelectRanking(chosen, name, ranking is not None, bound.count, bound.other_conditions)
    raise select.qualify.refusal(
        "qualify",
        f"QUALIFY bounds a rank; found '{select.qualify}'",
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= n",
    )


# -- over the columns of rows -----------------------------------------------------------------------------------------


class NameResolver(Protocol):
    """Says what names mean, in the rows of FROM or after GROUP BY."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def with_aliases(self, aliases: Mapping[str, str]) -> NameResolver: ...

    def resolve(self, span: Span, what: str) -> str: ...

    def resolve_column(self, span: Span, what: str) -> str | None: ...


@dataclass(frozen=True)
class ResolvedRanking:
    """A ranking over the columns of rows; `computed` are columns that have to be computed first."""

    span: Span
    ties: Ties
    per: tuple[str, ...]
    by: str
    computed: dict[str, str]

    def top(self, rows: Rows, count: int) -> Rows:
        with self.span.declaring_here():
            if self.computed:
                rows = rows.with_columns(**self.computed)
            return rows.top(count, by=self.by, per=self.per, ties=self.ties)


def resolve_ranking(
    found: SelectRanking, names: NameResolver, aliases: Mapping[str, str], scope: Scope
) -> ResolvedRanking:
    """The ranking over the columns of the rows. In the SELECT list, columns take precedence over aliases."""
    if found.in_list:
        columns = [table.columns for table in scope.tables]
        aliases = {
            name: text
            for name, text in aliases.items()
            if all(known is not None and name not in known for known in columns)
        }
    return _resolve(found.ranking, names.with_aliases(aliases), names.columns)


def _resolve(ranking: Ranking, names: NameResolver, taken: tuple[str, ...]) -> ResolvedRanking:
    per: list[str] = []
    computed: dict[str, str] = {}
    for group in ranking.groups:
        name = names.resolve_column(group, "partition by")
        if name is None:
            name = unused_name("group", (*taken, *computed))
            computed[name] = names.resolve(group, "partition by")
        per.append(name)
    by = ", ".join(_resolve_order(span, names) for span in ranking.order)
    return ResolvedRanking(ranking.span, ranking.ties, tuple(per), by, computed)


def _resolve_order(span: Span, names: NameResolver) -> str:
    """An element of ORDER BY as `top` reads it."""
    words = span.keywords
    nulls = words[-1] if words[-2:-1] == ("nulls",) else None
    rest = span if nulls is None else span.cut(0, -2)
    direction = rest.keywords[-1] if len(rest) > 1 and rest.keywords[-1] in ("asc", "desc") else None
    expression = rest if direction is None else rest.cut(0, -1)
    if not expression:
        raise span.refusal("order by", "an expression is missing between the commas")
    if nulls not in (None, "last" if direction == "desc" else "first"):
        raise span.refusal(
            "order by",
            f"nulls are the smallest values; found '{span}'",
            "leave NULLS FIRST and NULLS LAST out, or order by coalesce(...)",
        )
    text = names.resolve(expression, "order by")
    return f"{text} desc" if direction == "desc" else text


# -- bounds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankBound:
    """A condition that bounds a rank: the ranking, if the condition contains it, and how many ranks are kept."""

    condition: Span
    ranking: Ranking | None
    count: int
    other_conditions: tuple[Span, ...]


@dataclass(frozen=True)
class _ComparedRank:
    """`condition` compares a rank, by its name or by the ranking itself, with a number."""

    condition: Span
    ranking: Ranking | None
    sign: str
    number: Span

    def kept_ranks(self) -> int:
        """How many ranks the comparison keeps. It must keep the first ones, and nothing else."""
        if len(self.number) != 1 or not self.number.keywords[0].isdigit():
            raise self.condition.refusal(
                "rank", f"a rank is compared with a whole number; found '{self.condition}'", "<= 10"
            )
        value = int(self.number.keywords[0])
        is_first = self.sign in ("=", "==") and value == 1
        count = {"<=": value, "<": value - 1}.get(self.sign, 1 if is_first else 0)
        if count < 1:
            raise self.condition.refusal(
                "rank",
                f"the first ranks are kept; found '{self.condition}'",
                "write <= n, < n or = 1, and the rest after it",
            )
        return count


def find_rank_bound(conditions: Sequence[Span], name: str | None) -> RankBound | None:
    """The condition that bounds a rank; None if none does. `name` is the alias by which it may be compared."""
    found = [compared for condition in conditions if (compared := _as_compared_rank(condition, name)) is not None]
    for compared in found:
        if compared.sign in ("<", "<=") or compared.number.keywords == ("1",):
            rest = tuple(condition for condition in conditions if condition is not compared.condition)
            return RankBound(compared.condition, compared.ranking, compared.kept_ranks(), rest)
    for compared in found:
        compared.kept_ranks()  # refuses what is not a bound
    return None


def _as_compared_rank(condition: Span, name: str | None) -> _ComparedRank | None:
    comparison = as_comparison(condition)
    if comparison is None or comparison.sign == "<=>":
        return None
    for compared in (comparison, comparison.mirrored):
        ranking = as_ranking(compared.left)
        if ranking is not None or _is_rank_name(compared.left, name):
            return _ComparedRank(condition, ranking, compared.sign, without_parentheses(compared.right))
    return None


def _is_rank_name(span: Span, name: str | None) -> bool:
    names = [token for token in span.tokens if is_name(token)]
    plain = len(span) == 1 or (len(span) == 3 and span.keywords[1] == ".")
    return name is not None and plain and bool(names) and name_of(names[-1]) == name
