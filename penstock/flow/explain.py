"""What `penstock explain` prints: the graph of an app, and for each node its state and how long that is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from penstock.flow.describe_state import comma_list, describe_state, describe_window, duration_text, join_key_text
from penstock.flow.fingerprint import fingerprint
from penstock.flow.names import unquote
from penstock.flow.plan import (
    Aggregate,
    AnyJoin,
    AnySink,
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
    Sink,
    TimedJoin,
    Timing,
    Top,
    Topic,
    Union,
    Where,
    inputs,
    nodes,
)
from penstock.flow.warnings import plan_warnings


@dataclass(frozen=True, slots=True)
class _NumberedNode:
    """A node, its number in the plan, starting at 1, and the numbers of the nodes that it reads."""

    number: int
    reads: tuple[int, ...]
    node: Node


def explain(plan: Plan) -> str:
    """The graph as text: sources first, each node after the nodes that it reads, views and sinks last."""
    blocks = [f"app {plan.app}"]
    numbers: dict[Node, int] = {}
    for numbered in _numbered_nodes(plan):
        numbers[numbered.node] = numbered.number
        source = "" if not numbered.reads else f"  <- {comma_list(numbered.reads)}"
        rows = [f"{numbered.number}. {kind_of_node(numbered.node)} {describe(numbered.node)}".rstrip() + source]
        rows += [f"     {name:<8} {value}" for name, value in _facts(numbered.node)]
        blocks.append("\n".join(rows))
    ends = [f"view {view.name}  <- {numbers[view.node]}    ({view.location})" for view in plan.views]
    ends += [
        f"sink {sink.name} -> {_destination_text(sink)}  <- {numbers[sink.node]}    ({sink.location})"
        for sink in plan.all_sinks
    ]
    blocks.append("\n".join(ends) or "no views")
    blocks += map(str, plan_warnings(plan))
    return "\n\n".join(blocks)


def document(plan: Plan) -> dict[str, object]:
    """The graph as plain data, for programs."""
    numbered_nodes = _numbered_nodes(plan)
    numbers = {numbered.node: numbered.number for numbered in numbered_nodes}
    return {
        "app": plan.app,
        "nodes": [_node_document(numbered) for numbered in numbered_nodes],
        "views": [{"name": view.name, "node": numbers[view.node], "place": str(view.location)} for view in plan.views],
        "sinks": [
            {
                "name": sink.name,
                "node": numbers[sink.node],
                "topic" if isinstance(sink, Sink) else "url": sink.destination,
                "place": str(sink.location),
            }
            for sink in plan.all_sinks
        ],
        "warnings": warnings_document(plan),
    }


def _destination_text(sink: AnySink) -> str:
    return f"topic {sink.topic}" if isinstance(sink, Sink) else sink.url


def warnings_document(plan: Plan) -> list[dict[str, str]]:
    """What is probably not meant, as plain data."""
    return [
        {"place": str(warning.location), "message": warning.message, "hint": warning.hint}
        for warning in plan_warnings(plan)
    ]


def kind_of_node(node: Node) -> str:
    """The word for a node: the verb that makes it, if there is a single one."""
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
            return _selection_text(node)
        case Map():
            return getattr(node.function, "__qualname__", type(node.function).__name__)
        case Union():
            return f"of {len(node.inputs)}"
        case Distinct():
            within = "" if node.within is None else f" within {duration_text(node.within)}"
            return comma_list(node.columns) + within
        case Latest():
            return f"per {comma_list(node.key)}"
        case Changes():
            return "added and removed rows"
        case Top():
            per = f" per {comma_list(node.per)}" if node.per else ""
            return f"{node.count} by {', '.join(map(_order_text, node.order))}{per}"
        case Aggregate():
            return _aggregation_text(node)
        case Join() | TimedJoin() | AsOfJoin():
            return f"{node.how} on {', '.join(map(join_key_text, node.on))}{_bounds_text(node)}"


def _node_document(numbered: _NumberedNode) -> dict[str, object]:
    node = numbered.node
    return {
        "number": numbered.number,
        "kind": kind_of_node(node),
        "what": describe(node),
        "reads": list(numbered.reads),
        "columns": None if node.shape.columns is None else list(node.shape.columns),
        "time": node.shape.time,
        "key": None if node.shape.key is None else list(node.shape.key),
        "retracts": node.shape.retracts,
        "state": describe_state(node),
        "fingerprint": fingerprint(node),
        "place": str(node.location),
        **_captured_document(node),
    }


def _captured_document(node: Node) -> dict[str, object]:
    if not isinstance(node, Topic | Changelog) or node.captured is None:
        return {}
    return {"captured": asdict(node.captured)}


def _numbered_nodes(plan: Plan) -> list[_NumberedNode]:
    numbers: dict[Node, int] = {}
    for node in nodes(plan):
        numbers[node] = len(numbers) + 1
    return [
        _NumberedNode(number, tuple(numbers[input_] for input_ in inputs(node)), node)
        for node, number in numbers.items()
    ]


def _facts(node: Node) -> list[tuple[str, str]]:
    shape = node.shape
    facts = [("columns", "known when the app starts" if shape.columns is None else comma_list(shape.columns))]
    if isinstance(node, Topic | Changelog) and node.captured is not None:
        facts.append(("source", str(node.captured)))
    if isinstance(node, Topic) and node.timing is not None:
        facts.append(("time", _timing_text(node.timing)))
    if shape.key is not None:
        facts.append(("key", comma_list(shape.key) if shape.key else "none: one row"))
    return [*facts, ("state", describe_state(node) or "none"), ("declared", str(node.location))]


def _timing_text(timing: Timing) -> str:
    corrected = (
        "" if timing.sent is None else f", corrected by {timing.received or 'when it was stored'} - {timing.sent}"
    )
    return (
        f"{timing.column}{corrected}; up to {duration_text(timing.lateness)} late, "
        f"idle after {duration_text(timing.idle)}, at most {duration_text(timing.max_ahead)} ahead"
    )


def _selection_text(node: Select) -> str:
    columns = [_column_text(column) for column in node.columns]
    if not node.rest:
        return ", ".join(columns)
    without = f" without {comma_list(node.without)}" if node.without else ""
    return f"all{without}" + "".join(f", {column}" for column in columns)


def _aggregation_text(node: Aggregate) -> str:
    keys = f"by {', '.join(map(_column_text, node.keys))}" if node.keys else "all"
    aggregates = ", ".join(f"{named.name} = {' '.join(named.expression.split())}" for named in node.aggregates)
    if node.windowing is None:
        return f"{keys}: {aggregates}"
    return f"{describe_window(node.windowing)}, {keys}: {aggregates}"


def _bounds_text(node: AnyJoin) -> str:
    if isinstance(node, AsOfJoin):
        return ", the newest row" if node.as_of is None else f", as of {node.as_of}"
    nulls = ", nulls match" if node.nulls_match else ""
    if isinstance(node, Join):
        return nulls
    before = f", from {duration_text(node.before)} before" if node.before else ""
    return f" within {duration_text(node.after)}{before}{nulls}"


def _column_text(column: Named) -> str:
    text = " ".join(column.expression.split())
    return column.name if unquote(column.expression) == column.name else f"{column.name} = {text}"


def _order_text(order: Order) -> str:
    return f"{order.expression} desc" if order.descending else order.expression
