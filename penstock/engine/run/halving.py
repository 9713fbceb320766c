"""Halving a range of rows until single rows are left. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Span = tuple[int, int]
"""Rows from a first position up to a second one, exclusive."""


def halves(span: Span) -> tuple[Span, Span]:
    """The two halves of a span of at least two rows."""
    start, end = span
    middle = (start + end) // 2
    return (start, middle), (middle, end)


def narrow(span: Span, fails: Callable[[Span], bool], has_time: Callable[[], bool] = lambda: True) -> Span:
    """Narrow a span that fails down to one row: the first that fails, if a row fails or not regardless of others.

    Only first halves are tried: if one does not fail, the second half must. Stops early when there is no time left.
    """
    while span[1] - span[0] > 1 and has_time():
        first, second = halves(span)
        span = first if fails(first) else second
    return span


def find_counted(span: Span, count: Callable[[Span], int], total: int) -> Iterator[int]:
    """The positions of all rows that `count` counts, from the last to the first; the whole span has `total` of them.

    Only first halves are counted: the second half has the rest.
    """
    spans = [(span, total)]
    while spans:
        current, rows = spans.pop()
        if rows > 0 and current[1] - current[0] == 1:
            yield current[0]
        elif rows > 0:
            first, second = halves(current)
            in_first = count(first)
            spans += [(first, in_first), (second, rows - in_first)]
