"""Bounds of a join in time, from conditions such as `c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR`.

Times are whole microseconds, so that `<` means one less than `<=`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from penstock.errors import DeclarationError
from penstock.sql.conditions import Comparison, between, comparison
from penstock.sql.durations import interval
from penstock.sql.scope import Scope
from penstock.sql.text import Span, outermost, unwrapped

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest of right time - left time, in microseconds; None where there is none."""

    least: int | None = None
    greatest: int | None = None

    def and_also(self, other: Bounds) -> Bounds:
        leasts = [bound for bound in (self.least, other.least) if bound is not None]
        greatests = [bound for bound in (self.greatest, other.greatest) if bound is not None]
        return Bounds(max(leasts, default=None), min(greatests, default=None))


@dataclass(frozen=True)
class Times:
    """The scope of a condition, in which the last part is the right side, and the columns with the event times."""

    scope: Scope
    left: str
    right: str


def bounds_of(condition: Span, times: Times) -> Bounds | None:
    """What the condition says of the two event times; None if it says anything else."""
    pair = between(condition)
    single = comparison(condition)
    found = [_bound(one, times) for one in pair or (() if single is None else (single,))]
    known = [bound for bound in found if bound is not None]
    return reduce(Bounds.and_also, known) if known and len(known) == len(found) else None


def within_and_before(bounds: Bounds, span: Span) -> tuple[str, str]:
    """What `join` is given: how far the right event may be behind the left one, and how far before it."""
    assert bounds.least is not None and bounds.greatest is not None
    if not bounds.least <= 0 <= bounds.greatest:
        raise _beside(bounds, span)
    return f"{bounds.greatest} microseconds", f"{-bounds.least} microseconds"


def _beside(bounds: Bounds, span: Span) -> DeclarationError:
    return span.refusal(
        "join",
        "the bounds of a join in time include the same moment on both sides, and these leave it out",
        "let the bound begin or end with the other side's time itself, and put the narrower condition into WHERE",
    )


def _bound(one: Comparison, times: Times) -> Bounds | None:
    left, right = _moment(one.left, times), _moment(one.right, times)
    if left is None or right is None or left[0] == right[0] or one.sign not in _MIRRORED:
        return None
    sign, difference = one.sign, right[1] - left[1]
    if not left[0]:  # the left side's time stands on the left: say it of the right one
        sign, difference = _MIRRORED[sign], -difference
    match sign:
        case "<":
            return Bounds(greatest=difference - 1)
        case "<=":
            return Bounds(greatest=difference)
        case ">":
            return Bounds(least=difference + 1)
        case _:
            return Bounds(least=difference)


def _moment(span: Span, times: Times) -> tuple[bool, int] | None:
    """An event time and what is added to it: whether it is that of the right side, and the microseconds."""
    span = unwrapped(span)
    signs = [number for number in outermost(span.tokens) if span.keywords[number] in ("+", "-")]
    ends = [*signs[1:], len(span)]
    lengths = [interval(unwrapped(span.cut(sign + 1, end))) for sign, end in zip(signs, ends, strict=False)]
    side = _side(unwrapped(span.cut(0, signs[0] if signs else None)), times)
    if side is None:
        return None
    total = 0
    for sign, length in zip(signs, lengths, strict=True):
        if length is None:
            return None
        total += length if span.keywords[sign] == "+" else -length
    return side, total


def _side(span: Span, times: Times) -> bool | None:
    """Whether the column is the right side's event time (True) or the left one's (False); None if it is neither."""
    if not span:
        return None
    column = times.scope.column(span, "on")
    if column is None:
        return None
    part = times.scope.references(span, "on")[0].part
    is_right = part == len(times.scope.parts) - 1
    return is_right if column == (times.right if is_right else times.left) else None
