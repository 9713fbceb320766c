"""Event time: whether rows have a watermark, which windows and timed joins need, and how late they may come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.errors import DeclarationError
from penstock.flow.groups import WindowedRows
from penstock.flow.plan import (
    Aggregate,
    AsOfJoin,
    Changelog,
    Changes,
    Distinct,
    Emit,
    Hopping,
    How,
    Join,
    Late,
    Lateness,
    Latest,
    Map,
    Node,
    Select,
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
from penstock.flow.windows import check_windowing
from penstock.units import format_duration

# How long after the watermark bursts are kept.
BURST_KEEP = 3_600_000_000


def apply_window(node: Node, window: Window, emit: Emit, late: Late, keep: str | None) -> WindowedRows:
    """What `.window(...)` returns. Rows without a watermark are refused: their windows would never end."""
    checked = check_windowing(window, emit, late, keep)
    check_watermark(node, "windows need")
    checked = _keep_while_corrected(node, checked, given=keep)
    bound = _lateness(checked.keep, _first_window_to_end(checked.window), node)
    return WindowedRows(with_late_bound(node, bound), checked)


def check_watermark(node: Node, who_needs: str, which: str = "these") -> None:
    """Refuse rows without an event time, or without a watermark that says when no more of them are expected."""
    sources = list(_sources(node))
    if any(isinstance(step, Join) for step in timed_upstream(node)):
        raise DeclarationError(
            f"{who_needs} events with a time, and {which} come from a join without one, whose rows can change forever",
            hint="bound that join: within='1 hour' for two streams, as_of=... for a stream and a table",
        )
    for source in sources:
        if isinstance(source, Changelog):
            raise DeclarationError(
                f"{who_needs} events, and table '{source.name}' has none: it has no watermark",
                hint="declare it with app.topic(..., time=...) to see its rows as events",
            )
    if node.shape.time is None:
        raise DeclarationError(
            f"{who_needs} events with a time, and {which} have none; {_why_no_time(node, sources)}",
            hint=_time_hint(sources),
        )


def lateness(node: TimedJoin | AsOfJoin | Aggregate, number: int = 0) -> Lateness:
    """When events at this input of a timed join or of a window are too late."""
    match node:
        case AsOfJoin():
            return _lateness(node.keep + 1, None, node.left)
        case TimedJoin():
            wait = node.after if number == 0 else node.before
            return _lateness(wait + node.keep + 1, None, node.left, node.right)
        case Aggregate():
            assert node.windowing is not None
            return _lateness(node.windowing.keep, node.windowing.window, node.input)


def burst_lateness(node: Node) -> Lateness:
    """When an event is too late to belong to a burst: after an hour, or after as long as rows can be corrected."""
    return _lateness(max(BURST_KEEP, correction_period(node)), None, node)


def _first_window_to_end(window: Window) -> Window:
    """Windows that end with the first of the windows that an event is in: from then on not all of them accept it."""
    if not isinstance(window, Hopping):
        return window
    return Tumbling(window.every, (window.offset + window.size) % window.every, window.zone)


def _lateness(keep: int, window: Window | None, *inputs_: Node) -> Lateness:
    topics = {name for node in inputs_ for name in timed_sources(node)}
    delay = max(map(max_delay, inputs_)) + isinstance(window, Sliding)
    return Lateness(keep, window, tuple(sorted(topics)), delay)


def with_late_bound(node: Node, bound: Lateness) -> Node:
    """The same rows, with every `distinct` upstream bound: it ignores rows that are too late for the step after it.

    The walk ends at steps that are themselves bound by time: they have bound what is before them.
    """
    bound_nodes: dict[int, Node] = {}

    def bind(unbound: Node) -> Node:
        if id(unbound) not in bound_nodes:
            bound_nodes[id(unbound)] = _bind_node(unbound, bind, bound)
        return bound_nodes[id(unbound)]

    for step in upstream(node):  # inputs first, so that plans may be deeper than Python's stack
        bind(step)
    return bind(node)


def _bind_node(node: Node, bind: Callable[[Node], Node], bound: Lateness) -> Node:
    match node:
        case Union():
            branches = tuple(map(bind, node.inputs))
            same = all(new is old for new, old in zip(branches, node.inputs, strict=True))
            return node if same else replace(node, inputs=branches)
        case Distinct():
            return replace(node, input=bind(node.input), late=bound)
        case Where() | Select() | Map() | Latest() | Top() | Changes():
            new_input = bind(node.input)
            return node if new_input is node.input else replace(node, input=new_input)
        case _:
            return node


def _keep_while_corrected(node: Node, checked: Windowing, *, given: str | None) -> Windowing:
    """A window over answers is kept at least as long as they are corrected, or it would miss corrections."""
    joins = max(_join_correction_periods(node), default=0)
    longest = max((joins, *(windowing.keep for windowing in _upstream_windowings(node))))
    if checked.late == "correct" and (given is None or checked.keep >= longest):
        return replace(checked, keep=max(checked.keep, correction_period(node)))
    if checked.keep >= longest:
        return checked
    kept = format_duration(longest / 1_000_000)
    before = "" if joins == longest else ", or choose late='drop' for the windows before it"
    raise DeclarationError(
        f"these rows are answers that can be corrected for {kept}, and this window would miss that",
        hint=f"keep it as long: keep={kept!r}{before}",
    )


def correction_period(node: Node) -> int:
    """How long after its time a row can still be corrected by windows and timed joins upstream, in microseconds."""
    windows = (windowing.correction_period for windowing in _upstream_windowings(node))
    return max((*windows, *_join_correction_periods(node)), default=0)


def _upstream_windowings(node: Node) -> list[Windowing]:
    """The windows that the rows have passed through."""
    aggregates = (step for step in timed_upstream(node) if isinstance(step, Aggregate))
    return [aggregate.windowing for aggregate in aggregates if aggregate.windowing is not None]


def _join_correction_periods(node: Node) -> list[int]:
    """For each timed join that the rows have passed through: how long after its time a row can still change.

    It changes when a partner comes: one that happened up to `after` later, and that is accepted until `before` and
    `keep` after its own time; or the other way round.
    """
    joins = [step for step in timed_upstream(node) if isinstance(step, TimedJoin | AsOfJoin)]
    return [join.keep + (join.before + join.after if isinstance(join, TimedJoin) else 0) for join in joins]


def _last_partner(join: TimedJoin) -> int:
    """How much later than a row of the result its last partner can be, by event time."""
    match join.how:
        case "right":
            return join.before
        case "full":
            return max(join.before, join.after)
        case _:
            return join.after


def max_delay(node: Node) -> int:
    """How far the watermark can be past the time of a row that is made of events which are not late.

    Events themselves are not delayed. The result of a timed join waits for its last partner, so that answers over such
    results are final this much later.
    """
    delays: dict[Node, int] = {}
    for step in upstream(node):
        delays[step] = _delay(step, delays)
    return delays[node]


def _delay(node: Node, delays: Mapping[Node, int]) -> int:
    if not isinstance(node, TimedJoin):
        return max((delays[input_] for input_ in timed_inputs(node)), default=0)
    left, right = delays[node.left], delays[node.right]
    match node.how:
        case "inner" | "semi":
            return max(left, node.after + right)
        case _:
            return max(left, right) + _last_partner(node)


def timed_join_memory(how: How, before: int, after: int, keep: int) -> tuple[int, int]:
    """How long after it happened a row of the left side, and one of the right side, is needed by a timed join.

    It is needed while a partner may come. Where it matters whether a row has any partner (outer, semi and anti joins),
    it is also needed while other partners of its partners may come: up to the time of the last partner, and as long
    again.
    """
    while_partners_come = before + after + keep
    left = while_partners_come + (after if how in ("right", "full") else 0)
    right = while_partners_come + (before if how in ("left", "full", "semi", "anti") else 0)
    return left, right


def window_end(node: Node, group: tuple[str, ...]) -> str | None:
    """The column with the end of the window, if every group of these rows belongs to a single window."""
    shape = node.shape
    return shape.time if shape.time_is_end and shape.time in group else None


def timed_sources(node: Node) -> tuple[str, ...]:
    """The topics with event time that determine the time of a node's rows, directly or not."""
    return tuple(sorted({step.name for step in timed_upstream(node) if isinstance(step, Topic) and step.timing}))


def clock_topics(node: Node) -> tuple[str, ...]:
    """The topics whose common watermark is the time of a node; for `distinct`, those of the step that bounds it."""
    return node.late.topics if isinstance(node, Distinct) and node.late is not None else timed_sources(node)


def clock_topics_of(nodes: Iterable[Node]) -> dict[Node, tuple[str, ...]]:
    """`clock_topics` of many nodes, each given after those that it reads: much faster than one after the other."""
    sources: dict[Node, frozenset[str]] = {}
    clocks: dict[Node, tuple[str, ...]] = {}
    for node in nodes:
        own = {node.name} if isinstance(node, Topic) and node.timing else ()
        sources[node] = frozenset(own).union(*(sources[input_] for input_ in timed_inputs(node)))
        bounded = isinstance(node, Distinct) and node.late is not None
        clocks[node] = clock_topics(node) if bounded else tuple(sorted(sources[node]))
    return clocks


def timed_inputs(node: Node) -> tuple[Node, ...]:
    """The inputs that determine the time of a node's rows: all, except a table in which it only looks up rows."""
    return (node.left,) if isinstance(node, AsOfJoin) else inputs(node)


def timed_upstream(node: Node) -> Iterator[Node]:
    """A node and everything upstream that determines the time of its rows, each node once."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        step = stack.pop()
        if step not in seen:
            seen.add(step)
            stack.extend(reversed(timed_inputs(step)))
            yield step


def _sources(node: Node) -> list[Topic | Changelog]:
    return [step for step in timed_upstream(node) if isinstance(step, Topic | Changelog)]


def _why_no_time(node: Node, sources: list[Topic | Changelog]) -> str:
    untimed = [source.name for source in sources if source.shape.time is None]
    if untimed:
        return f"topic '{untimed[0]}' was declared without one"
    times = sorted({str(source.shape.time) for source in sources})
    if any(isinstance(step, TimedJoin) and step.how == "full" for step in timed_upstream(node)):
        return f"after a full join either of {' and '.join(map(repr, times))} may be missing"
    return f"{' and '.join(repr(time) for time in times)} is no longer among the columns"


def _time_hint(sources: list[Topic | Changelog]) -> str:
    if any(source.shape.time is None for source in sources):
        return "name the column: app.topic(..., time=...)"
    return "keep the column as it is in select, with_columns, drop and union; group_by without a window has none"
