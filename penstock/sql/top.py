"""ROW_NUMBER() and RANK() with a bound as the verb `top`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.flow.plan import Ties
from penstock.sql.conditions import comparison
from penstock.sql.reader import Reader
from penstock.sql.scope import Rows, unused_name
from penstock.sql.text import Span, closing, is_name, meaning, name_of, parts, unwrapped

_FUNCTIONS: dict[str, Ties] = {"row_number": "break", "rank": "keep"}
_OTHERS = ("dense_rank", "ntile", "percent_rank", "cume_dist")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "=="}
_FORM = "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)"


class Resolves(Protocol):
    """Says what names mean: in the rows of FROM, or behind GROUP BY."""

    def text(self, span: Span, what: str) -> str: ...

    def column(self, span: Span, what: str) -> str | None: ...


@dataclass(frozen=True)
class Ranking:
    """A ranking as it was written: `span` is all of it, up to the parenthesis that closes OVER."""

    span: Span
    ties: Ties
    groups: tuple[Span, ...]
    order: tuple[Span, ...]


@dataclass(frozen=True)
class Resolved:
    """A ranking over the columns of rows: `computed` are columns that must be made first."""

    span: Span
    ties: Ties
    per: tuple[str, ...]
    by: str
    computed: dict[str, str]

    def top(self, rows: Rows, count: int) -> Rows:
        with self.span.text.at(self.span.at):
            if self.computed:
                rows = rows.with_columns(**self.computed)
            return rows.top(count, by=self.by, per=self.per, ties=self.ties)


@dataclass(frozen=True)
class Bound:
    """A condition that bounds a rank: the ranking, if it stands there itself, the ranks kept, the other conditions."""

    condition: Span
    ranking: Ranking | None
    count: int
    others: tuple[Span, ...]


def ranking_in(span: Span) -> Ranking | None:
    """The ranking that an expression is; None if it is anything else."""
    span = unwrapped(span)
    end = closing(span.tokens, 1) if span.keywords[1:2] == ("(",) else None
    if end is None or span.keywords[end + 1 : end + 2] != ("over",):
        return None
    function = span.keywords[0]
    if function in _OTHERS:
        hint = "RANK() counts rows that are equal, ROW_NUMBER() tells them apart"
        raise span.refusal("over", f"{function.upper()}() is not there", hint)
    if function not in _FUNCTIONS or closing(span.tokens, end + 2) != len(span) - 1:
        return None
    groups, order = _over(span.cut(end + 3, -1))
    return Ranking(span, _FUNCTIONS[function], groups, order)


def _over(span: Span) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """What stands behind PARTITION BY and behind ORDER BY."""
    reader = Reader(span, "over")
    groups: tuple[Span, ...] = ()
    if reader.accept("partition", "by"):
        groups = tuple(parts(reader.until(lambda one, number: one.keywords[number : number + 2] == ("order", "by"))))
    reader.expect("order", "by", hint=_FORM)
    order = reader.until(lambda one, number: number > 0 and one.keywords[number] in ("rows", "range", "groups"))
    if not reader.at_end:
        raise reader.refusal("a rank is among all rows of its group: leave out what follows ORDER BY", _FORM)
    return groups, tuple(parts(order))


def resolved(ranking: Ranking, names: Resolves, taken: tuple[str, ...]) -> Resolved:
    """The ranking over the columns of rows."""
    per: list[str] = []
    computed: dict[str, str] = {}
    for group in ranking.groups:
        name = names.column(group, "partition by")
        if name is None:
            name = unused_name("group", (*taken, *computed))
            computed[name] = names.text(group, "partition by")
        per.append(name)
    by = ", ".join(_order(one, names) for one in ranking.order)
    return Resolved(ranking.span, ranking.ties, tuple(per), by, computed)


def _order(span: Span, names: Resolves) -> str:
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
    text = names.text(expression, "order by")
    return f"{text} desc" if direction == "desc" else text


# -- bounds -----------------------------------------------------------------------------------------------------------


def bound_in(conditions: Sequence[Span], name: str | None) -> Bound | None:
    """The condition that bounds a rank, where `name` is the one under which it can be compared; None if none does."""
    compared = [(condition, one) for condition in conditions if (one := _compared(condition, name)) is not None]
    for condition, (ranking, sign, number) in compared:
        if sign in ("<", "<=") or number.keywords == ("1",):
            others = tuple(one for one in conditions if one is not condition)
            return Bound(condition, ranking, _count(condition, sign, number), others)
    for condition, (_, sign, number) in compared:
        _count(condition, sign, number)
    return None


def _compared(condition: Span, name: str | None) -> tuple[Ranking | None, str, Span] | None:
    """What a rank is compared with, if that is what the condition does: the ranking, if it stands there itself."""
    one = comparison(condition)
    if one is None or one.sign == "<=>":
        return None
    for side, sign, other in ((one.left, one.sign, one.right), (one.right, _MIRRORED[one.sign], one.left)):
        ranking = ranking_in(side)
        if ranking is not None or _is_rank(side, name):
            return ranking, sign, unwrapped(other)
    return None


def _is_rank(span: Span, name: str | None) -> bool:
    names = [token for token in span.tokens if is_name(token)]
    plain = len(span) == 1 or (len(span) == 3 and span.keywords[1] == ".")
    return name is not None and plain and bool(names) and name_of(names[-1]) == name


def _count(condition: Span, sign: str, number: Span) -> int:
    """How many ranks a comparison keeps."""
    if len(number) != 1 or not number.keywords[0].isdigit():
        raise condition.refusal("rank", f"a rank is compared with a whole number; found '{condition}'", "<= 10")
    value = int(number.keywords[0])
    count = {"<=": value, "<": value - 1}.get(sign, 1 if sign in ("=", "==") and value == 1 else 0)
    if count < 1:
        raise condition.refusal(
            "rank", f"the first ranks are kept; found '{condition}'", "write <= n, < n or = 1, and the rest behind it"
        )
    return count


def same_ranking(one: Ranking, other: Ranking) -> bool:
    return meaning(one.span.tokens) == meaning(other.span.tokens)
