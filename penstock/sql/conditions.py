"""What conditions say: the parts that AND joins, comparisons, and bounds between two event times.

`c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR` bounds a join in time. Times are whole microseconds, so that `<` means
one less than `<=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from penstock.flow.conditions import outermost_ands
from penstock.sql.reader import interval_microseconds
from penstock.sql.scope import Scope
from penstock.sql.text import Span, top_level, without_parentheses

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "==", "<=>": "<=>"}
# With one of these outside of brackets, a comparison is not the whole condition.
_OTHER_OPERATORS = frozenset(
    {"and", "or", "not", "!", "between", "in", "is", "like", "ilike", "rlike", "regexp", "<>", "!=", "->"}
)


@dataclass(frozen=True)
class Comparison:
    left: Span
    sign: str
    right: Span

    @property
    def mirrored(self) -> Comparison:
        """The same comparison with the sides exchanged."""
        return Comparison(self.right, _MIRRORED[self.sign], self.left)


def conjuncts(span: Span) -> list[Span]:
    """The conditions that must all be true, without parentheses around several of them."""
    inner = without_parentheses(span)
    cuts = outermost_ands(inner.tokens)
    if not cuts:
        return [span]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, None]
    parts = [inner.cut(start, end) for start, end in zip(starts, ends, strict=True)]
    return [condition for part in parts for condition in conjuncts(part)]


def as_comparison(span: Span) -> Comparison | None:
    """The condition as one comparison; None if it is anything else."""
    inner = without_parentheses(span)
    words = {number: inner.keywords[number] for number in top_level(inner.tokens)}
    signs = [number for number, word in words.items() if word in _MIRRORED]
    if len(signs) != 1 or _OTHER_OPERATORS & {*words.values()}:
        return None
    sign = signs[0]
    if sign in (0, len(inner) - 1):
        return None
    return Comparison(inner.cut(0, sign), inner.keywords[sign], inner.cut(sign + 1))


def as_between(span: Span) -> tuple[Comparison, Comparison] | None:
    """`x BETWEEN a AND b` as two comparisons; None if it is anything else."""
    inner = without_parentheses(span)
    words = {number: inner.keywords[number] for number in top_level(inner.tokens)}
    operators = [(number, word) for number, word in words.items() if word in _MIRRORED or word in _OTHER_OPERATORS]
    if [word for _, word in operators] != ["between", "and"]:
        return None
    (between, _), (and_, _) = operators
    value, low, high = inner.cut(0, between), inner.cut(between + 1, and_), inner.cut(and_ + 1)
    return Comparison(value, ">=", low), Comparison(value, "<=", high)


def all_of(conditions: Sequence[str]) -> str:
    """One condition that is true if all of these are."""
    return " AND ".join(conditions)


# -- bounds between event times ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeBounds:
    """The least and the greatest value of right time - left time, in microseconds; None: not bounded."""

    least: int | None = None
    greatest: int | None = None

    def intersect(self, bounds: TimeBounds) -> TimeBounds:
        leasts = [least for least in (self.least, bounds.least) if least is not None]
        greatests = [greatest for greatest in (self.greatest, bounds.greatest) if greatest is not None]
        return TimeBounds(max(leasts, default=None), min(greatests, default=None))


@dataclass(frozen=True)
class EventTimes:
    """The columns with the event times of both sides. The last table of the scope is the right side."""

    scope: Scope
    left: str
    right: str


def time_bounds(condition: Span, times: EventTimes) -> TimeBounds | None:
    """The bounds that the condition sets between the two event times; None if it says anything else."""
    pair = as_between(condition)
    single = as_comparison(condition)
    bounds = [_bound(comparison, times) for comparison in pair or (() if single is None else (single,))]
    known = [bound for bound in bounds if bound is not None]
    return reduce(TimeBounds.intersect, known) if known and len(known) == len(bounds) else None


def within_and_before(bounds: TimeBounds, span: Span) -> tuple[str, str]:
    """The arguments of `join`: how much later than the left event the right one may be, and how much earlier."""
    assert bounds.least is not None and bounds.greatest is not None
    if not bounds.least <= 0 <= bounds.greatest:
        raise span.refusal(
            "join",
            "the bounds of a join in time include the same moment on both sides, and these leave it out",
            "let the bound begin or end with the other side's time itself, and put the narrower condition into WHERE",
        )
    return f"{bounds.greatest} microseconds", f"{-bounds.least} microseconds"


def _bound(comparison: Comparison, times: EventTimes) -> TimeBounds | None:
    left, right = _moment(comparison.left, times), _moment(comparison.right, times)
    if left is None or right is None or left.is_right == right.is_right:
        return None
    if not left.is_right:  # the time of the right side comes second: exchange the sides
        comparison, left, right = comparison.mirrored, right, left
    difference = right.shift - left.shift
    match comparison.sign:
        case "<":
            return TimeBounds(greatest=difference - 1)
        case "<=":
            return TimeBounds(greatest=difference)
        case ">":
            return TimeBounds(least=difference + 1)
        case ">=":
            return TimeBounds(least=difference)
        case _:
            return None


@dataclass(frozen=True)
class _Moment:
    """An event time, of the right side or of the left one, and the microseconds that are added to it."""

    is_right: bool
    shift: int


def _moment(span: Span, times: EventTimes) -> _Moment | None:
    span = without_parentheses(span)
    signs = [number for number in top_level(span.tokens) if span.keywords[number] in ("+", "-")]
    ends = [*signs[1:], len(span)]
    intervals = [
        interval_microseconds(without_parentheses(span.cut(sign + 1, end)))
        for sign, end in zip(signs, ends, strict=False)
    ]
    is_right = _is_right_time(without_parentheses(span.cut(0, signs[0] if signs else None)), times)
    if is_right is None:
        return None
    shift = 0
    for sign, interval in zip(signs, intervals, strict=True):
        if interval is None:
            return None
        shift += interval if span.keywords[sign] == "+" else -interval
    return _Moment(is_right, shift)


def _is_right_time(span: Span, times: EventTimes) -> bool | None:
    """Whether it is the event time of the right side (True) or of the left side (False); None if it is neither."""
    if not span:
        return None
    column = times.scope.resolve_column(span, "on")
    if column is None:
        return None
    table = times.scope.references(span, "on")[0].table
    is_right = table == len(times.scope.tables) - 1
    return is_right if column == (times.right if is_right else times.left) else None
