"""Whether rows have an event time and a watermark, which windows need."""

from __future__ import annotations

from penstock.errors import DeclarationError
from penstock.flow.grouped import Windowed
from penstock.flow.plan import Changelog, Emit, Late, Node, Topic, Window, inputs
from penstock.flow.windows import windowing


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
    return Windowed(node, checked)


def _sources(node: Node) -> list[Topic | Changelog]:
    if isinstance(node, Topic | Changelog):
        return [node]
    return [source for one in inputs(node) for source in _sources(one)]


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
