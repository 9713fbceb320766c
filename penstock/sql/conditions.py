"""Takes conditions apart: what is joined by AND, comparisons, BETWEEN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.flow.conditions import outermost_ands
from penstock.sql.text import Span, outermost, unwrapped

COMPARISONS = ("=", "==", "<=>", "<", "<=", ">", ">=")
# With one of these outside of brackets, a comparison is not the whole condition.
_OTHERS = frozenset(
    {"and", "or", "not", "!", "between", "in", "is", "like", "ilike", "rlike", "regexp", "<>", "!=", "->"}
)


@dataclass(frozen=True)
class Comparison:
    left: Span
    sign: str
    right: Span


def conjuncts(span: Span) -> list[Span]:
    """The conditions that must all be true; parentheses around several of them are taken away."""
    inner = unwrapped(span)
    cuts = outermost_ands(inner.tokens)
    if not cuts:
        return [span]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, None]
    return [one for start, end in zip(starts, ends, strict=True) for one in conjuncts(inner.cut(start, end))]


def comparison(span: Span) -> Comparison | None:
    """The condition as one comparison; None if it is anything else."""
    inner = unwrapped(span)
    words = {number: inner.keywords[number] for number in outermost(inner.tokens)}
    signs = [number for number, word in words.items() if word in COMPARISONS]
    if len(signs) != 1 or _OTHERS & {*words.values()}:
        return None
    at = signs[0]
    if at in (0, len(inner) - 1):
        return None
    return Comparison(inner.cut(0, at), inner.keywords[at], inner.cut(at + 1))


def between(span: Span) -> tuple[Comparison, Comparison] | None:
    """`x BETWEEN a AND b` as two comparisons; None if it is anything else."""
    inner = unwrapped(span)
    words = {number: inner.keywords[number] for number in outermost(inner.tokens)}
    found = [(number, word) for number, word in words.items() if word in (*COMPARISONS, *_OTHERS)]
    if [word for _, word in found] != ["between", "and"]:
        return None
    (begins, _), (ends, _) = found
    low, high = inner.cut(begins + 1, ends), inner.cut(ends + 1)
    value = inner.cut(0, begins)
    return Comparison(value, ">=", low), Comparison(value, "<=", high)


def together(texts: Sequence[str]) -> str:
    """Conditions as one, which is true where all are."""
    return " AND ".join(texts)
