"""A whole app as one DataFrame: running it once runs one epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.build import aggregates, as_of, distinct, joins, latest, rows, sources, top
from penstock.engine.build.fetch import Fetch, fetch_for
from penstock.engine.build.graph import Graph, NodeState
from penstock.engine.build.needs import STATEFUL, downstream_clocks, needs_of, shared_nodes, upserted_nodes
from penstock.engine.build.outputs import build_output
from penstock.engine.publish.accounts import has_met_state
from penstock.flow import plan as flow

# Tasks find their state by the number of their partition, and rows get there by the columns of their group. These rules
# would remove branches without rows and columns of groups, or replace columns that are the same for all rows.
_RULES = (
    "FoldablePropagation",
    "PropagateEmptyRelation",
    "PruneFilters",
    "RemoveLiteralFromGroupExpressions",
    "RemoveRepetitionFromGroupExpressions",
)
_EXCLUDED_RULES = ",".join(f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in _RULES)


@dataclass(frozen=True, slots=True)
class BuiltPlan:
    """`epoch`: the rows of this DataFrame are the reports of tasks. `states`: those that the tasks keep.

    `outputs`: the columns of each output.
    """

    epoch: DataFrame
    states: dict[str, NodeState]
    outputs: dict[str, pa.Schema]


def build(spark: SparkSession, plan: flow.Plan, *, partitions: int, small: bool = True) -> BuiltPlan:
    spark.conf.set("spark.sql.optimizer.excludedRules", _EXCLUDED_RULES)
    fetches = {} if small else _fetches(plan)
    graph = Graph(spark, partitions, needs_of(plan, fetches), shared_nodes(plan, small=small), upserted_nodes(plan))
    frames, outputs = [], {}
    # Spark numbers the tasks of a union consecutively: all branches have a multiple of `partitions`.
    for output in sorted(plan.outputs, key=lambda output: not _keeps_state(output.node)):
        changes = _changes_of(graph, output.node)
        frame, outputs[output.name] = build_output(graph, changes, output, fetches.get(output.name))
        frames.append(frame)
    clocks = downstream_clocks(plan)
    states = {name: replace(state, ahead=clocks.get(state.node, frozenset())) for name, state in graph.states.items()}
    return BuiltPlan(reduce(DataFrame.unionAll, frames), states, outputs)


def _fetches(plan: flow.Plan) -> dict[str, Fetch]:
    """What tasks fetch from the log, by output.

    Not for small epochs: in these a task costs more than its rows, and what several outputs read is evaluated once.
    """
    fetches = {output.name: fetch_for(output) for output in plan.outputs}
    return {name: fetch for name, fetch in fetches.items() if fetch is not None}


def _keeps_state(node: flow.Node) -> bool:
    return any(isinstance(step, STATEFUL) for step in flow.upstream(node))


def _changes_of(graph: Graph, node: flow.Node) -> DataFrame:
    """The changes of a node, as a DataFrame that is built on first use."""
    if node not in graph.built_frames:
        changes = _build_node(graph, node)
        graph.built_frames[node] = graph.evaluate_once(changes) if node in graph.shared_nodes else changes
    return graph.built_frames[node]


def _union_parts(graph: Graph, node: flow.Union) -> list[flow.Node]:
    """The inputs of a union; for those that are unions themselves, their inputs. Spark plans one large union faster.

    Where the origin of rows is needed, each union has its own way to number them, which states rely on.
    """
    parts: list[flow.Node] = []
    pending: list[flow.Node] = list(reversed(node.inputs))
    while pending:
        part = pending.pop()
        if isinstance(part, flow.Union) and part not in graph.shared_nodes and node not in graph.needs.origin:
            pending.extend(reversed(part.inputs))
        else:
            parts.append(part)
    return parts


def _build_node(graph: Graph, node: flow.Node) -> DataFrame:
    if isinstance(node, flow.Topic):
        return sources.source(graph, node)
    if isinstance(node, flow.Changelog):
        return latest.changelog(graph, sources.source(graph, node), node)
    if isinstance(node, flow.Union):
        parts = _union_parts(graph, node)
        branches = [_changes_of(graph, part) for part in parts]
        return rows.union(branches, list(map(has_met_state, parts)), graph.needs.columns[node])
    if isinstance(node, flow.Join | flow.TimedJoin):
        return joins.join(graph, _changes_of(graph, node.left), _changes_of(graph, node.right), node)
    if isinstance(node, flow.AsOfJoin):
        if node.as_of is None:
            table = _changes_of(graph, node.right)
        else:
            table = as_of.history(graph, node.right, partial(_changes_of, graph))
        return as_of.as_of_join(graph, _changes_of(graph, node.left), table, node)
    changes = _changes_of(graph, node.input)
    match node:
        case flow.Where():
            return rows.where(changes, node)
        case flow.Select():
            return rows.select(changes, node, graph.needs.columns[node])
        case flow.Map():
            return rows.map_rows(graph, changes, node)
        case flow.Changes():
            return rows.changes(changes, node, origin=node in graph.needs.origin)
        case flow.Distinct():
            return distinct.distinct(graph, changes, node)
        case flow.Latest():
            return latest.latest(graph, changes, node)
        case flow.Top():
            return top.top(graph, changes, node)
        case flow.Aggregate():
            return aggregates.aggregate(graph, changes, node)
