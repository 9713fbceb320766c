"""What `penstock explain` prints: the graph of an app, and for each node what state it keeps and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.flow.describe_state import duration, joined_on, state_of, window_text
from penstock.flow.fingerprint import fingerprint
from penstock.flow.names import unquoted
from penstock.flow.plan import (
    Aggregate,
    AnyJoin,
    AsOfJoin,
    Changelog,
    Changes,
    Distinct,
    Join,
    Latest,
    Map,
    Named,
    Node,
    Order,
    Plan,
    Select,
    TimedJoin,
    Timing,
    Top,
    Topic,
    Union,
    Where,
    inputs,
    nodes,
)


@dataclass(frozen=True, slots=True)
class _Line:
    """A node with its number in the plan, from 1 on, and those of the nodes it reads from."""

    number: int
    reads: tuple[int, ...]
    node: Node


def explain(plan: Plan) -> str:
    """The graph as text: sources first, each node after those it reads from, views and sinks last."""
    blocks = [f"app {plan.app}"]
    numbers: dict[Node, int] = {}
    for line in _lines(plan):
        numbers[line.node] = line.number
        source = "" if not line.reads else f"  <- {_listed(line.reads)}"
        rows = [f"{line.number}. {kind_of_node(line.node)} {describe(line.node)}".rstrip() + source]
        rows += [f"     {name:<8} {value}" for name, value in _facts(line.node)]
        blocks.append("\n".join(rows))
    ends = [f"view {one.name}  <- {numbers[one.node]}    ({one.place})" for one in plan.views]
    ends += [f"sink {one.name} -> topic {one.topic}  <- {numbers[one.node]}    ({one.place})" for one in plan.sinks]
    blocks.append("\n".join(ends) or "no views")
    return "\n\n".join(blocks)


def document(plan: Plan) -> dict[str, object]:
    """The same as plain data, for programs."""
    lines = list(_lines(plan))
    numbers = {line.node: line.number for line in lines}
    return {
        "app": plan.app,
        "nodes": [_document(line) for line in lines],
        "views": [{"name": view.name, "node": numbers[view.node], "place": str(view.place)} for view in plan.views],
        "sinks": [
            {"name": sink.name, "node": numbers[sink.node], "topic": sink.topic, "place": str(sink.place)}
            for sink in plan.sinks
        ],
    }


def kind_of_node(node: Node) -> str:
    """The word for a node: that of the verb that makes it, where it is one verb."""
    if isinstance(node, Changelog):
        return "table"
    if isinstance(node, Aggregate):
        return "group" if node.windowing is None else "window"
    if isinstance(node, Join | TimedJoin | AsOfJoin):
        return "join"
    return type(node).__name__.lower()


def describe(node: Node) -> str:
    """What a node does, in a few words."""
    match node:
        case Topic() | Changelog():
            return node.name
        case Where():
            return " ".join(node.condition.split())
        case Select():
            return _selection(node)
        case Map():
            return getattr(node.function, "__qualname__", type(node.function).__name__)
        case Union():
            return f"of {len(node.inputs)}"
        case Distinct():
            within = "" if node.within is None else f" within {duration(node.within)}"
            return _listed(node.columns) + within
        case Latest():
            return f"per {_listed(node.key)}"
        case Changes():
            return "added and removed rows"
        case Top():
            per = f" per {_listed(node.per)}" if node.per else ""
            return f"{node.count} by {', '.join(map(_order, node.order))}{per}"
        case Aggregate():
            return _aggregation(node)
        case Join() | TimedJoin() | AsOfJoin():
            return f"{node.how} on {', '.join(map(joined_on, node.on))}{_bounds(node)}"


def _document(line: _Line) -> dict[str, object]:
    node = line.node
    return {
        "number": line.number,
        "kind": kind_of_node(node),
        "what": describe(node),
        "reads": list(line.reads),
        "columns": None if node.shape.columns is None else list(node.shape.columns),
        "time": node.shape.time,
        "key": None if node.shape.key is None else list(node.shape.key),
        "retracts": node.shape.retracts,
        "state": state_of(node),
        "fingerprint": fingerprint(node),
        "place": str(node.place),
    }


def _lines(plan: Plan) -> list[_Line]:
    numbers: dict[Node, int] = {}
    for node in nodes(plan):
        numbers[node] = len(numbers) + 1
    return [_Line(number, tuple(numbers[one] for one in inputs(node)), node) for node, number in numbers.items()]


def _facts(node: Node) -> list[tuple[str, str]]:
    shape = node.shape
    facts = [("columns", "known when the app starts" if shape.columns is None else _listed(shape.columns))]
    if isinstance(node, Topic) and node.timing is not None:
        facts.append(("time", _timing(node.timing)))
    if shape.key is not None:
        facts.append(("key", _listed(shape.key) if shape.key else "none: one row"))
    return [*facts, ("state", state_of(node) or "none"), ("declared", str(node.place))]


def _timing(timing: Timing) -> str:
    corrected = (
        "" if timing.sent is None else f", corrected by {timing.received or 'when it was stored'} - {timing.sent}"
    )
    return (
        f"{timing.column}{corrected}; up to {duration(timing.lateness)} late, idle after {duration(timing.idle)}, "
        f"at most {duration(timing.max_ahead)} ahead"
    )


def _selection(node: Select) -> str:
    columns = [_named(column) for column in node.columns]
    if not node.rest:
        return ", ".join(columns)
    without = f" without {_listed(node.without)}" if node.without else ""
    return f"all{without}" + "".join(f", {column}" for column in columns)


def _aggregation(node: Aggregate) -> str:
    keys = f"by {', '.join(map(_named, node.keys))}" if node.keys else "all"
    aggregates = ", ".join(f"{one.name} = {' '.join(one.expression.split())}" for one in node.aggregates)
    if node.windowing is None:
        return f"{keys}: {aggregates}"
    return f"{window_text(node.windowing)}, {keys}: {aggregates}"


def _bounds(node: AnyJoin) -> str:
    if isinstance(node, AsOfJoin):
        return ", the newest row" if node.as_of is None else f", as of {node.as_of}"
    nulls = ", nulls match" if node.nulls_match else ""
    if isinstance(node, Join):
        return nulls
    before = f", from {duration(node.before)} before" if node.before else ""
    return f" within {duration(node.after)}{before}{nulls}"


def _named(column: Named) -> str:
    text = " ".join(column.expression.split())
    return column.name if unquoted(column.expression) == column.name else f"{column.name} = {text}"


def _order(order: Order) -> str:
    return f"{order.expression} desc" if order.descending else order.expression


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
