"""What later nodes need of earlier ones, worked out from the outputs back to the sources. Plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from penstock.engine.build.fetch import Fetch
from penstock.engine.build.graph import Needs, clock_of
from penstock.flow import plan as flow
from penstock.flow.expressions import columns_of
from penstock.flow.lateness import timed_upstream, window_end

Columns = frozenset[str]
# Names are compared without case, as Spark does.
EVERYTHING = frozenset({"*"})
STATEFUL = (flow.Changelog, flow.Distinct, flow.Latest, flow.Top, flow.Aggregate, *get_args(flow.AnyJoin))


def needs_of(plan: flow.Plan, fetches: Mapping[str, Fetch] | None = None) -> Needs:
    """`fetches` are the columns that the tasks of outputs fetch from the log, by output: Spark need not have them."""
    columns: dict[flow.Node, Columns] = {}
    origin: set[flow.Node] = set()
    for output in plan.outputs:
        fetch = (fetches or {}).get(output.name)
        wanted = EVERYTHING if fetch is None else _lower(fetch.computed)
        columns[output.node] = columns.get(output.node, frozenset()) | wanted
        if fetch is not None:
            origin.add(output.node)
    # Every node comes before those it reads from, so that all who need something of it have been asked.
    for node in reversed(list(flow.nodes(plan))):
        if isinstance(node, flow.Changelog):
            # What a table keeps must not depend on which views read it: they may change while it stays.
            columns[node] = EVERYTHING
        for one in flow.inputs(node):
            columns[one] = columns.get(one, frozenset()) | _of_input(node, columns[node])
            if _place_of_input(node, node in origin):
                origin.add(one)
    return Needs(columns, frozenset(origin))


def _of_input(node: flow.Node, wanted: Columns) -> Columns:
    match node:
        case flow.Where():
            return wanted | _lower(columns_of(node.condition))
        case flow.Select():
            return _of_select(node, wanted)
        case flow.Union():
            return wanted
        case flow.Aggregate():
            expressions = [one.expression for one in (*node.keys, *node.aggregates)]
            time = node.input.shape.time if node.windowing else None
            return _lower(_columns(expressions)) | _lower([time] if time else [])
        case _:
            # A ranking, a first or newest row is one among rows that differ in any column.
            return EVERYTHING


def _of_select(node: flow.Select, wanted: Columns) -> Columns:
    if node.rest:
        return EVERYTHING
    return _lower(_columns(one.expression for one in node.columns if is_wanted(one.name, wanted)))


def is_wanted(name: str, wanted: Columns) -> bool:
    return "*" in wanted or name.lower() in wanted


def _place_of_input(node: flow.Node, place: bool) -> bool:
    if isinstance(node, flow.Distinct | flow.Latest):
        return True
    return place and isinstance(node, flow.Where | flow.Select | flow.Map | flow.Union | flow.Distinct)


def _columns(expressions: Iterable[str]) -> list[str]:
    return [name for one in expressions for name in columns_of(one)]


def _lower(names: Iterable[str]) -> Columns:
    return frozenset(name.lower() for name in names)


def shared(plan: flow.Plan, *, small: bool) -> frozenset[flow.Node]:
    """Nodes that several others read from, and whose changes are worth working out once.

    In a small epoch that is all that lies behind Python, because a task of it costs more than its rows do. In a large
    one it is what keeps state: to read a topic twice is cheaper than to write its rows down.
    """
    readers = Counter(one for node in flow.nodes(plan) for one in flow.inputs(node))
    readers.update(one.node for one in plan.outputs)
    chosen: set[flow.Node] = set()
    costly: set[flow.Node] = set()
    for node in flow.nodes(plan):
        python = isinstance(node, flow.Topic | flow.Map) or any(one in costly for one in flow.inputs(node))
        if not isinstance(node, STATEFUL) and not (small and python):
            continue
        if readers[node] > 1:
            chosen.add(node)
        else:
            costly.add(node)
    return frozenset(chosen)


def ahead_of(plan: flow.Plan) -> dict[flow.Node, frozenset[tuple[str, ...]]]:
    """For each node, the topics of the steps behind it that forget by time, as far as they are not its own."""
    topics = {node: clock_of(node) for node in flow.nodes(plan)}
    ahead: dict[flow.Node, frozenset[tuple[str, ...]]] = {}
    for step in filter(_forgets_by_time, topics):
        for node in timed_upstream(step):
            if topics[node] != topics[step]:
                ahead[node] = ahead.get(node, frozenset()) | {topics[step]}
    return ahead


def _forgets_by_time(node: flow.Node) -> bool:
    match node:
        case flow.Aggregate():
            return node.windowing is not None
        case flow.Distinct():
            return node.late is not None
        case flow.Top():
            return window_end(node.input, node.per) is not None
        case flow.TimedJoin():
            return True
        case flow.AsOfJoin():
            return node.as_of is not None
        case _:
            return False


def upserted(plan: flow.Plan) -> frozenset[flow.Node]:
    """Nodes whose changes go to sinks only, with the key: there a new row replaces the old one by itself.

    Views do so too, but whoever follows their changes is told which rows went.
    """
    viewed = {view.node for view in plan.views}
    ends = {output.node for output in plan.outputs if not isinstance(output, flow.View)}
    readers: dict[flow.Node, list[flow.Node]] = {}
    for node in flow.nodes(plan):
        for one in flow.inputs(node):
            readers.setdefault(one, []).append(node)

    def only_outputs(node: flow.Node) -> bool:
        """Whether everything behind the node is a selection that ends in a sink, and keeps the key."""
        if node.shape.key is None or node in viewed or (node not in ends and node not in readers):
            return False
        return all(isinstance(one, flow.Select) and only_outputs(one) for one in readers.get(node, []))

    return frozenset(node for node in flow.nodes(plan) if isinstance(node, STATEFUL) and only_outputs(node))
