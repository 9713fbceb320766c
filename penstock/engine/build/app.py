"""A whole app as one DataFrame: running it once is running one epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.build import aggregates, as_of, distinct, joins, latest, rows, sources, top
from penstock.engine.build.fetch import Fetch, fetch_for
from penstock.engine.build.graph import Graph, StateOf
from penstock.engine.build.needs import STATEFUL, ahead_of, needs_of, shared, upserted
from penstock.engine.build.outputs import output
from penstock.engine.publish.accounts import has_met_state
from penstock.flow import plan as flow

# Tasks find their state by the number of their partition, and rows get there by the columns of their group. These rules
# would take away branches without rows, and columns from groups, or put what is the same for all rows in their place.
_RULES = (
    "FoldablePropagation",
    "PropagateEmptyRelation",
    "PruneFilters",
    "RemoveLiteralFromGroupExpressions",
    "RemoveRepetitionFromGroupExpressions",
)
_EXCLUDED = ",".join(f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in _RULES)


@dataclass(frozen=True, slots=True)
class Built:
    """`epoch` gives a row for each file that was staged; `states` are those that its tasks keep."""

    epoch: DataFrame
    states: dict[str, StateOf]
    outputs: dict[str, pa.Schema]


def build(spark: SparkSession, plan: flow.Plan, *, partitions: int, small: bool = True) -> Built:
    spark.conf.set("spark.sql.optimizer.excludedRules", _EXCLUDED)
    fetches = {} if small else _fetches(plan)
    graph = Graph(spark, partitions, needs_of(plan, fetches), shared(plan, small=small), upserted(plan))
    staged, outputs = [], {}
    # Spark numbers the tasks of a union one after the other: all branches have a multiple of `partitions`.
    for end in sorted(plan.outputs, key=lambda end: not _keeps_state(end.node)):
        frame, outputs[end.name] = output(graph, _rows(graph, end.node), end, fetches.get(end.name))
        staged.append(frame)
    ahead = ahead_of(plan)
    states = {name: replace(one, ahead=ahead.get(one.node, frozenset())) for name, one in graph.states.items()}
    return Built(reduce(DataFrame.unionAll, staged), states, outputs)


def _fetches(plan: flow.Plan) -> dict[str, Fetch]:
    """What tasks fetch from the log, by output. Not for small epochs: there a task costs more than its rows do, and
    what several outputs read is worked out once."""
    found = {end.name: fetch_for(end) for end in plan.outputs}
    return {name: fetch for name, fetch in found.items() if fetch is not None}


def _keeps_state(node: flow.Node) -> bool:
    return any(isinstance(one, STATEFUL) for one in flow.upstream(node))


def _rows(graph: Graph, node: flow.Node) -> DataFrame:
    """The changes of a node."""
    if node not in graph.built:
        made = _made(graph, node)
        graph.built[node] = graph.worked_out_once(made) if node in graph.shared else made
    return graph.built[node]


def _made(graph: Graph, node: flow.Node) -> DataFrame:
    if isinstance(node, flow.Topic):
        return sources.source(graph, node)
    if isinstance(node, flow.Changelog):
        return latest.changelog(graph, sources.source(graph, node), node)
    if isinstance(node, flow.Union):
        met = [has_met_state(one) for one in node.inputs]
        return rows.union([_rows(graph, one) for one in node.inputs], met, graph.needs.columns[node])
    if isinstance(node, flow.Join | flow.TimedJoin):
        return joins.join(graph, _rows(graph, node.left), _rows(graph, node.right), node)
    if isinstance(node, flow.AsOfJoin):
        right = node.right
        table = _rows(graph, right) if node.as_of is None else as_of.history(graph, right, partial(_rows, graph))
        return as_of.look_up(graph, _rows(graph, node.left), table, node)
    given = _rows(graph, node.input)
    match node:
        case flow.Where():
            return rows.where(given, node)
        case flow.Select():
            return rows.select(given, node, graph.needs.columns[node])
        case flow.Map():
            return rows.mapped(graph, given, node)
        case flow.Changes():
            return rows.changes(given, node, origin=node in graph.needs.origin)
        case flow.Distinct():
            return distinct.distinct(graph, given, node)
        case flow.Latest():
            return latest.latest(graph, given, node)
        case flow.Top():
            return top.top(graph, given, node)
        case flow.Aggregate():
            return aggregates.aggregate(graph, given, node)
