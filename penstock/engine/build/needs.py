"""What nodes need of the nodes before them, worked out from the outputs back to the sources. It knows no Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from penstock.engine.build.fetch import Fetch
from penstock.flow import plan as flow
from penstock.flow.lateness import clock_topics_of, timed_upstream, window_end
from penstock.flow.needs import EVERYTHING, Columns, in_lower_case, needed_of_input

STATEFUL = (flow.Changelog, flow.Distinct, flow.Latest, flow.Top, flow.Aggregate, *get_args(flow.AnyJoin))


@dataclass(frozen=True, slots=True)
class Needs:
    """What is needed of each node: which columns, and for nodes in `origin` where in the log each row comes from."""

    columns: dict[flow.Node, Columns]
    origin: frozenset[flow.Node]


def needs_of(plan: flow.Plan, fetches: Mapping[str, Fetch] | None = None) -> Needs:
    """`fetches` are the columns that the tasks of outputs fetch from the log, by output: Spark need not have them."""
    columns: dict[flow.Node, Columns] = {}
    origin: set[flow.Node] = set()
    for output in plan.outputs:
        fetch = (fetches or {}).get(output.name)
        needed = EVERYTHING if fetch is None else in_lower_case(fetch.computed)
        columns[output.node] = columns.get(output.node, frozenset()) | needed
        if fetch is not None:
            origin.add(output.node)
    # Every node comes before its inputs, so that everything that is needed of it is known.
    for node in reversed(list(flow.nodes(plan))):
        if isinstance(node, flow.Changelog):
            # What a table stores must not depend on which views read it: they may change while it stays.
            columns[node] = EVERYTHING
        for input_ in flow.inputs(node):
            columns[input_] = columns.get(input_, frozenset()) | needed_of_input(node, columns[node])
            if _needs_origin_of_input(node, node in origin):
                origin.add(input_)
    return Needs(columns, frozenset(origin))


def _needs_origin_of_input(node: flow.Node, needed: bool) -> bool:
    if isinstance(node, flow.Distinct | flow.Latest):
        return True
    return needed and isinstance(node, flow.Where | flow.Select | flow.Map | flow.Union | flow.Distinct)


def shared_nodes(plan: flow.Plan, *, small: bool) -> frozenset[flow.Node]:
    """Nodes that several others read, and whose changes are worth computing only once.

    In a small epoch that is everything after a Python step, because a Python task costs more than its rows do. In a
    large epoch it is what keeps state: reading a topic twice is cheaper than exchanging its rows.
    """
    readers = Counter(input_ for node in flow.nodes(plan) for input_ in flow.inputs(node))
    readers.update(output.node for output in plan.outputs)
    chosen: set[flow.Node] = set()
    costly: set[flow.Node] = set()
    for node in flow.nodes(plan):
        python = isinstance(node, flow.Topic | flow.Map) or any(input_ in costly for input_ in flow.inputs(node))
        if not isinstance(node, STATEFUL) and not (small and python):
            continue
        if readers[node] > 1:
            chosen.add(node)
        else:
            costly.add(node)
    return frozenset(chosen)


def downstream_clocks(plan: flow.Plan) -> dict[flow.Node, frozenset[tuple[str, ...]]]:
    """For each node, the topic groups of downstream steps that expire state by watermark, except its own group."""
    topics = clock_topics_of(flow.nodes(plan))
    clocks: dict[flow.Node, frozenset[tuple[str, ...]]] = {}
    for step in filter(_expires_by_watermark, topics):
        for node in timed_upstream(step):
            if topics[node] != topics[step]:
                clocks[node] = clocks.get(node, frozenset()) | {topics[step]}
    return clocks


def _expires_by_watermark(node: flow.Node) -> bool:
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


def upserted_nodes(plan: flow.Plan) -> frozenset[flow.Node]:
    """Nodes whose changes go only to sinks, with the key: there a new row replaces the old one by itself.

    In a view it would too, but whoever follows the changes of a view is told which rows were removed.
    """
    viewed = {view.node for view in plan.views}
    ends = {output.node for output in plan.outputs if not isinstance(output, flow.View)}
    readers: dict[flow.Node, list[flow.Node]] = {}
    for node in flow.nodes(plan):
        for input_ in flow.inputs(node):
            readers.setdefault(input_, []).append(node)

    def reaches_only_sinks(node: flow.Node) -> bool:
        """Whether all that reads the node are selections that keep the key and end in sinks."""
        if node.shape.key is None or node in viewed or (node not in ends and node not in readers):
            return False
        return all(isinstance(reader, flow.Select) and reaches_only_sinks(reader) for reader in readers.get(node, []))

    return frozenset(node for node in flow.nodes(plan) if isinstance(node, STATEFUL) and reaches_only_sinks(node))
