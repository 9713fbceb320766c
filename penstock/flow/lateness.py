"""Whether rows have an event time and a watermark, which windows and joins in time need, and how late they may come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from penstock.errors import DeclarationError
from penstock.flow.grouped import Windowed
from penstock.flow.plan import (
    Aggregate,
    AsOfJoin,
    Changelog,
    Changes,
    Distinct,
    Emit,
    Hopping,
    Join,
    Late,
    Lateness,
    Latest,
    Map,
    Node,
    Select,
    Session,
    Sliding,
    TimedJoin,
    Top,
    Topic,
    Tumbling,
    Union,
    Where,
    Window,
    Windowing,
    inputs,
    upstream,
)
from penstock.flow.windows import windowing
from penstock.units import format_duration

# How long after the watermark bursts are remembered.
BURSTS_KEPT = 3_600_000_000


def windowed(node: Node, window: Window, emit: Emit, late: Late, keep: str | None) -> Windowed:
    """What `.window(...)` gives, where the rows have a time by which windows can end."""
    checked = windowing(window, emit, late, keep)
    check_watermark(node, "windows need")
    checked = _keeping_what_is_corrected(node, checked, given=keep)
    return Windowed(in_time(node, _lateness(checked.keep, _first_to_end(checked.window), node)), checked)


def check_watermark(node: Node, who_needs: str, which: str = "these") -> None:
    """Refuse rows without an event time, or without a watermark that says when no more of them come."""
    sources = list(_sources(node))
    if any(isinstance(one, Join) for one in timed_upstream(node)):
        raise DeclarationError(
            f"{who_needs} events with a time, and {which} come from a join without one, whose rows can change for ever",
            hint="bound that join: within='1 hour' for two streams, .as_of(...) for a stream and a table",
        )
    for source in sources:
        if isinstance(source, Changelog):
            raise DeclarationError(
                f"{who_needs} events, and table '{source.name}' has none: it has no watermark",
                hint="declare it with app.topic(..., time=...) to see its rows as events",
            )
    if node.shape.time is None:
        raise DeclarationError(
            f"{who_needs} events with a time, and {which} have none; {_reason(node, sources)}", hint=_hint(sources)
        )


def lateness(node: TimedJoin | AsOfJoin | Aggregate, number: int = 0) -> Lateness:
    """When events that reach this input of a join in time or of a window are too late."""
    match node:
        case AsOfJoin():
            return _lateness(node.keep + 1, None, node.left)
        case TimedJoin():
            wait = node.after if number == 0 else node.before
            return _lateness(wait + node.keep + 1, None, node.left, node.right)
        case Aggregate():
            assert node.windowing is not None
            return _lateness(node.windowing.keep, node.windowing.window, node.input)


def lateness_of_bursts(node: Node) -> Lateness:
    """When an event is too late to belong to a burst: an hour after its time, or as long as rows may be corrected."""
    return _lateness(max(BURSTS_KEPT, corrected_for(node)), None, node)


def _first_to_end(window: Window) -> Window:
    """Windows that end when the first one ends of those that an event is in: not all of which may take it any more."""
    if not isinstance(window, Hopping):
        return window
    return Tumbling(window.every, (window.offset + window.size) % window.every, window.zone)


def _lateness(keep: int, window: Window | None, *inputs_: Node) -> Lateness:
    topics = {name for node in inputs_ for name in timed_sources(node)}
    delay = max(map(delayed_by, inputs_)) + isinstance(window, Sliding)
    return Lateness(keep, window, tuple(sorted(topics)), delay)


def in_time(node: Node, bound: Lateness) -> Node:
    """The same rows, without those that `distinct` on the way here would take though they are too late from there on.

    What itself goes by time is a bound for all that lies before it.
    """
    made: dict[int, Node] = {}

    def bounded(one: Node) -> Node:
        if id(one) not in made:
            made[id(one)] = _with_inputs(one, bounded, bound)
        return made[id(one)]

    return bounded(node)


def _with_inputs(node: Node, bounded: Callable[[Node], Node], bound: Lateness) -> Node:
    match node:
        case Union():
            branches = tuple(map(bounded, node.inputs))
            same = all(new is old for new, old in zip(branches, node.inputs, strict=True))
            return node if same else replace(node, inputs=branches)
        case Distinct():
            return replace(node, input=bounded(node.input), late=bound)
        case Where() | Select() | Map() | Latest() | Top() | Changes():
            given = bounded(node.input)
            return node if given is node.input else replace(node, input=given)
        case _:
            return node


def _keeping_what_is_corrected(node: Node, checked: Windowing, *, given: str | None) -> Windowing:
    """A window over answers must be kept as long as those are corrected, or it would miss corrections."""
    joins = max(_corrections_of_joins(node), default=0)
    longest = max((joins, *(one.keep for one in _windowings(node))))
    if checked.late == "correct" and (given is None or checked.keep >= longest):
        return replace(checked, keep=max(checked.keep, corrected_for(node)))
    if checked.keep >= longest:
        return checked
    kept = format_duration(longest / 1_000_000)
    before = "" if joins == longest else ", or choose late='drop' for the windows before it"
    raise DeclarationError(
        f"these rows are answers that can be corrected for {kept}, and this window would miss that",
        hint=f"keep it as long: keep={kept!r}{before}",
    )


def corrected_for(node: Node) -> int:
    """How long after its time an answer of a window or of a join in time may still be corrected, in microseconds."""
    return max((*map(_corrected_for, _windowings(node)), *_corrections_of_joins(node)), default=0)


def _corrected_for(windowing: Windowing) -> int:
    window = windowing.window
    return windowing.keep + (window.reach if isinstance(window, Session) else 0)


def _windowings(node: Node) -> list[Windowing]:
    """Of all windows that rows have come through."""
    return [one.windowing for one in timed_upstream(node) if isinstance(one, Aggregate) and one.windowing is not None]


def _corrections_of_joins(node: Node) -> list[int]:
    """For all joins in time that rows have come through: how long after a row's time it can still change.

    A partner that is not late may itself be as much older as both bounds together, since it could have a younger one.
    """
    joins = [one for one in timed_upstream(node) if isinstance(one, TimedJoin | AsOfJoin)]
    return [one.keep + (one.before + one.after if isinstance(one, TimedJoin) else 0) for one in joins]


def _last_partner(join: TimedJoin) -> int:
    """How much later than a row of the result, by its own time, its last partner may happen."""
    match join.how:
        case "right":
            return join.before
        case "full":
            return max(join.before, join.after)
        case _:
            return join.after


def delayed_by(node: Node) -> int:
    """How much later than its time a row may come, by the watermark, though none of the events it is made of is late.

    Events come at once. The result of a join in time waits for its last partner, so that an answer over such results
    is final this much later.
    """
    delays: dict[Node, int] = {}
    for one in upstream(node):
        delays[one] = _delay(one, delays)
    return delays[node]


def _delay(node: Node, delays: Mapping[Node, int]) -> int:
    if not isinstance(node, TimedJoin):
        return max((delays[one] for one in timed_inputs(node)), default=0)
    left, right = delays[node.left], delays[node.right]
    match node.how:
        case "inner" | "semi":
            return max(left, node.after + right)
        case _:
            return max(left, right) + _last_partner(node)


def window_end(node: Node, group: tuple[str, ...]) -> str | None:
    """The column that says when the windows of groups end, where each group of these rows is of one window."""
    shape = node.shape
    return shape.time if shape.time_is_end and shape.time in group else None


def timed_sources(node: Node) -> tuple[str, ...]:
    """The topics with event time by which a node's rows come, directly or not."""
    timed = {one.name for one in timed_upstream(node) if isinstance(one, Topic) and one.timing}
    return tuple(sorted(timed))


def timed_inputs(node: Node) -> tuple[Node, ...]:
    """The nodes by whose time a node's rows come: all it reads from, but not a table in which it only looks up."""
    return (node.left,) if isinstance(node, AsOfJoin) else inputs(node)


def timed_upstream(node: Node) -> Iterator[Node]:
    """A node and all by whose time its rows come, every one once."""
    seen: set[Node] = set()
    ahead = [node]
    while ahead:
        one = ahead.pop()
        if one not in seen:
            seen.add(one)
            ahead.extend(reversed(timed_inputs(one)))
            yield one


def _sources(node: Node) -> list[Topic | Changelog]:
    return [one for one in timed_upstream(node) if isinstance(one, Topic | Changelog)]


def _reason(node: Node, sources: list[Topic | Changelog]) -> str:
    untimed = [source.name for source in sources if source.shape.time is None]
    if untimed:
        return f"topic '{untimed[0]}' was declared without one"
    times = sorted({str(source.shape.time) for source in sources})
    if any(isinstance(one, TimedJoin) and one.how == "full" for one in timed_upstream(node)):
        return f"behind a full join either of {' and '.join(map(repr, times))} may be missing"
    return f"{' and '.join(repr(time) for time in times)} did not come this far"


def _hint(sources: list[Topic | Changelog]) -> str:
    if any(source.shape.time is None for source in sources):
        return "name the column: app.topic(..., time=...)"
    return "keep the column as it is in select, with_columns, drop and union; group_by without a window has none"
