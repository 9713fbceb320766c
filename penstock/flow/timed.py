"""Whether rows have an event time and a watermark, which windows need."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import DeclarationError
from penstock.flow.grouped import Windowed
from penstock.flow.plan import Aggregate, Changelog, Emit, Late, Node, Session, Topic, Window, Windowing, upstream
from penstock.flow.windows import windowing
from penstock.units import format_duration


def windowed(node: Node, window: Window, emit: Emit, late: Late, keep: str | None) -> Windowed:
    """What `.window(...)` gives, where the rows have a time by which windows can end."""
    checked = windowing(window, emit, late, keep)
    sources = list(_sources(node))
    for source in sources:
        if isinstance(source, Changelog):
            raise DeclarationError(
                f"windows need events, and table '{source.name}' has none: it has no watermark that ends a window",
                hint="declare it with app.topic(..., time=...) to see its rows as events",
            )
    if node.shape.time is None:
        raise DeclarationError(
            f"windows need events with a time, and these have none; {_reason(sources)}", hint=_hint(sources)
        )
    return Windowed(node, _keeping_what_is_corrected(node, checked, given=keep))


def _keeping_what_is_corrected(node: Node, checked: Windowing, *, given: str | None) -> Windowing:
    """A window over answers of windows must be kept as long as those are corrected, or it would miss corrections."""
    longest = max((one.keep for one in _windowings(node)), default=0)
    if checked.late == "correct" and (given is None or checked.keep >= longest):
        return replace(checked, keep=max(checked.keep, corrected_for(node)))
    if checked.keep >= longest:
        return checked
    kept = format_duration(longest / 1_000_000)
    raise DeclarationError(
        f"these rows are answers that can be corrected for {kept}, and this window would miss that",
        hint=f"keep it as long: keep={kept!r}, or choose late='drop' for the windows before it",
    )


def corrected_for(node: Node) -> int:
    """How long after the end of its window an answer may still be corrected, in microseconds."""
    return max(map(_corrected_for, _windowings(node)), default=0)


def _corrected_for(windowing: Windowing) -> int:
    window = windowing.window
    return windowing.keep + (window.reach if isinstance(window, Session) else 0)


def _windowings(node: Node) -> list[Windowing]:
    """Of all windows that rows have come through."""
    return [one.windowing for one in upstream(node) if isinstance(one, Aggregate) and one.windowing is not None]


def window_end(node: Node, group: tuple[str, ...]) -> str | None:
    """The column that says when the windows of groups end, where each group of these rows is of one window."""
    shape = node.shape
    return shape.time if shape.time_is_end and shape.time in group else None


def _sources(node: Node) -> list[Topic | Changelog]:
    return [one for one in upstream(node) if isinstance(one, Topic | Changelog)]


def _reason(sources: list[Topic | Changelog]) -> str:
    untimed = [source.name for source in sources if source.shape.time is None]
    if untimed:
        return f"topic '{untimed[0]}' was declared without one"
    times = sorted({str(source.shape.time) for source in sources})
    return f"{' and '.join(repr(time) for time in times)} did not come this far"


def _hint(sources: list[Topic | Changelog]) -> str:
    if any(source.shape.time is None for source in sources):
        return "name the column: app.topic(..., time=...)"
    return "keep the column as it is in select, with_columns, drop and union; group_by without a window has none"
