"""Evaluates rows again from their topics up to the first state, to find those that fail or that were late.

Each row carries its origin in the log. Expressions are guarded: one that fails gives null instead of failing the job,
so that a single job finds all rows that fail. Users' functions are guarded in Spark's tasks, by `guarded.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build import rows as stateless
from penstock.engine.build.graph import ORIGIN, Graph, NodeState, hash_inputs, quote, user_columns
from penstock.engine.build.guarded import TOPIC, guard_functions
from penstock.engine.build.needs import Needs
from penstock.engine.build.sources import source
from penstock.engine.build.windows import deadline_of, moment
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.state.columns import GONE
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, split_aggregates
from penstock.flow.lateness import lateness
from penstock.flow.needs import EVERYTHING

STEP = "_step"
EXPRESSION = "_expression"
ROW_ORIGIN = (TOPIC, *ORIGIN)
_GUARD = "_guard"


Evaluated = tuple[str, Column]
"""An expression that a node evaluates on each row, as the user reads it and as Spark evaluates it."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The expressions of a node, and `rows`: its input, of which some rows may fail."""

    node: flow.Node
    rows: DataFrame
    expressions: tuple[Evaluated, ...]

    def describe_failure(self, number: int) -> str:
        return f"{self.node.location}: {self.expressions[number][0]} fails on it"

    def evaluation(self, number: int) -> DataFrame:
        """A DataFrame that fails as one of the expressions does."""
        return _evaluate_all_columns(self.rows.select(self.expressions[number][1].alias("_value")))


@dataclass(frozen=True, slots=True)
class ProbedRows:
    """The rows of a node that no state is before, None if there are none."""

    rows: DataFrame | None
    guard: Guard | None = None


def guard_expressions(graph: Graph, plan: flow.Plan) -> list[Guard]:
    """The nodes whose expressions may fail on rows of the log that are to be found."""
    probed_nodes: dict[flow.Node, ProbedRows] = {}
    for node in flow.nodes(plan):
        probed_nodes[node] = _guard_node(graph, node, probed_nodes)
    return [probed.guard for probed in probed_nodes.values() if probed.guard is not None]


def find_failing(spark: SparkSession, guards: Sequence[Guard]) -> DataFrame | None:
    """Rows on which an expression fails: `_topic`, `_partition`, `_offset`, and the numbers `_step`, `_expression`."""
    frames = []
    for number, guard in enumerate(guards):
        failed_rows = _guarded_rows(spark, guard).where(F.col(_GUARD).isNull())
        values = [value for _, value in guard.expressions]
        failed = [F.when(try_eval(spark, F.struct(value)).isNull(), F.lit(at)) for at, value in enumerate(values)]
        expression = F.coalesce(*failed, F.lit(0)).alias(EXPRESSION)
        frames.append(failed_rows.select(*ROW_ORIGIN, F.lit(number).alias(STEP), expression))
    return reduce(DataFrame.unionAll, frames).distinct() if frames else None


def find_late(graph: Graph, state: NodeState, watermark: int) -> DataFrame | None:
    """Rows that were too late for a state; None if all rows have passed through another state before.

    They have an origin, unless a user's function before has dropped it.
    """
    probed_nodes: dict[flow.Node, ProbedRows] = {}
    input_node = flow.inputs(state.node)[state.input]
    for node in flow.upstream(input_node):
        probed_nodes[node] = _pass_through(graph, node, probed_nodes, through_state=False)
    rows = probed_nodes[input_node].rows
    if rows is None:
        return None
    last = deadline_of(moment(input_node.shape), _lateness(state.node, state.input))
    return rows.where(last <= F.lit(watermark))


def has_origin(rows: DataFrame) -> bool:
    return set(ROW_ORIGIN) <= set(rows.columns)


def probe_frames(graph: Graph, plan: flow.Plan, *, guard: bool = False) -> list[DataFrame]:
    """DataFrames that evaluate every user's function that no state is before. They may fail, unless guarded.

    They also evaluate expressions after a function that drops the origin of rows: guards cannot find rows there.
    """
    probed_nodes: dict[flow.Node, ProbedRows] = {}
    frames = []
    for node in flow.nodes(plan):
        inputs = [probed_nodes[upstream].rows for upstream in flow.inputs(node)]
        with guard_functions() if guard and isinstance(node, flow.Map) else nullcontext():
            probed_nodes[node] = _pass_through(graph, node, probed_nodes)
        rows = probed_nodes[node].rows
        if isinstance(node, flow.Map) and rows is not None:
            frames.append(_evaluate_all_columns(rows))
        elif len(inputs) == 1 and inputs[0] is not None and not has_origin(inputs[0]):
            values = [value for _, value in _evaluated_expressions(graph.spark, node, inputs[0])]
            columns = [value.alias(f"_{number}") for number, value in enumerate(values)]
            frames += [_evaluate_all_columns(inputs[0].select(*columns))] if columns else []
    return frames


def _evaluate_all_columns(rows: DataFrame) -> DataFrame:
    """A hash over all columns, so that Spark evaluates each of them."""
    return rows.groupBy().agg(F.max(F.xxhash64(*hash_inputs(rows, rows.columns))).alias("_all"))


def _lateness(node: flow.Node, number: int) -> flow.Lateness:
    """When events are late for this input of a node."""
    if isinstance(node, flow.Distinct):
        assert node.late is not None
        return node.late
    assert isinstance(node, flow.TimedJoin | flow.AsOfJoin | flow.Aggregate)
    return lateness(node, number)


def needs_everything(plan: flow.Plan) -> Needs:
    """All columns and the origin of all rows, so that rows can be found."""
    every = tuple(flow.nodes(plan))
    return Needs(dict.fromkeys(every, EVERYTHING), frozenset(every))


def _guard_node(graph: Graph, node: flow.Node, probed_nodes: Mapping[flow.Node, ProbedRows]) -> ProbedRows:
    """The rows of a node, with its expressions guarded."""
    inputs = [probed_nodes[upstream].rows for upstream in flow.inputs(node)]
    if len(inputs) != 1 or inputs[0] is None:
        return _pass_through(graph, node, probed_nodes)
    expressions = tuple(_evaluated_expressions(graph.spark, node, inputs[0]))
    if not expressions:
        return _pass_through(graph, node, probed_nodes)
    if not has_origin(inputs[0]):
        return ProbedRows(None)
    guard = Guard(node, inputs[0], expressions)
    guarded_rows = _guarded_rows(graph.spark, guard)
    return ProbedRows(_surviving_rows(node, guarded_rows.where(F.col(_GUARD).isNotNull())), guard)


def _guarded_rows(spark: SparkSession, guard: Guard) -> DataFrame:
    """The rows with the values of all expressions, or null where one of them fails."""
    fields = [value.alias(f"_{index}") for index, (_, value) in enumerate(guard.expressions)]
    return guard.rows.withColumn(_GUARD, try_eval(spark, F.struct(*fields)))


def _surviving_rows(node: flow.Node, guarded_rows: DataFrame) -> DataFrame | None:
    """The rows of a node whose expressions were guarded, with the values of the guard.

    Evaluated a second time they would fail: Spark pushes down a filter that does not read the guard.
    """
    match node:
        case flow.Where():
            return guarded_rows.where(f"{_GUARD}._0").drop(_GUARD)
        case flow.Select():
            guarded_columns = {column.name.lower(): f"{_GUARD}._{number}" for number, column in enumerate(node.columns)}
            left_out = {*guarded_columns, _GUARD, *(name.lower() for name in node.without)}
            candidates = [name for name in guarded_rows.columns if node.rest or name.startswith("_")]
            kept_columns = [quote(name) for name in candidates if name.lower() not in left_out]
            return guarded_rows.select(
                *kept_columns,
                *(F.expr(guarded_columns[column.name.lower()]).alias(column.name) for column in node.columns),
            )
        case _:
            return None


def _pass_through(
    graph: Graph, node: flow.Node, probed_nodes: Mapping[flow.Node, ProbedRows], *, through_state: bool = True
) -> ProbedRows:
    """The rows of a node that have passed through no state.

    With `through_state`, a state that only selects rows of its input does not count.
    """
    if isinstance(node, flow.Topic | flow.Changelog):
        rows = source(graph, node).withColumn(TOPIC, F.lit(node.name))
        return ProbedRows(rows.where(~F.col(GONE)).drop(GONE) if isinstance(node, flow.Changelog) else rows)
    inputs = [probed_nodes[upstream].rows for upstream in flow.inputs(node)]
    frames = [rows for rows in inputs if rows is not None]
    if not frames or (len(frames) < len(inputs) and not isinstance(node, flow.Union)):
        return ProbedRows(None)
    match node:
        case flow.Where():
            return ProbedRows(stateless.where(frames[0], node))
        case flow.Select():
            return ProbedRows(stateless.select(frames[0], node))
        case flow.Map():
            return ProbedRows(node.function(frames[0]))
        case flow.Latest() | flow.Distinct():
            # Its rows are some of those of its input: these include all on which later expressions are evaluated.
            return ProbedRows(frames[0] if through_state and WEIGHT not in frames[0].columns else None)
        case flow.Union():
            if any(WEIGHT in rows.columns for rows in frames):
                return ProbedRows(None)
            names = [quote(name) for name in user_columns(frames[0])]
            origin = ROW_ORIGIN if all(map(has_origin, frames)) else ()
            return ProbedRows(reduce(DataFrame.unionAll, [rows.select(*names, *origin) for rows in frames]))
        case _:
            return ProbedRows(None)


def _evaluated_expressions(spark: SparkSession, node: flow.Node, rows: DataFrame) -> Iterator[Evaluated]:
    """The expressions that a node evaluates on each row."""
    match node:
        case flow.Where():
            yield f"where({node.condition!r})", F.expr(node.condition)
        case flow.Select():
            for column in node.columns:
                yield f"{column.name}={column.expression!r}", F.expr(column.expression)
        case flow.Top():
            for order in node.order:
                yield f"top(by={order.expression!r})", F.expr(order.expression)
        case flow.Aggregate():
            for key in node.keys:
                yield f"group_by({key.name}={key.expression!r})", F.expr(key.expression)
            for part in node.aggregates:
                for call in split_aggregates(part.expression).calls:
                    for argument in _arguments(spark, call, rows):
                        yield f"agg({part.name}={part.expression!r})", argument
                    if call.filter is not None:
                        yield f"agg({part.name}={part.expression!r})", F.expr(call.filter)


def _arguments(spark: SparkSession, call: Call, rows: DataFrame) -> Iterator[Column]:
    """The arguments of an aggregate as Spark evaluates them: it may cast them first."""
    logical_plan = rows.groupBy().agg(F.expr(call.text))._jdf.queryExecution().analyzed()
    children = logical_plan.aggregateExpressions().head().child().aggregateFunction().children()
    for number in range(children.size()):
        yield _column(spark, children.apply(number))


def try_eval(spark: SparkSession, value: Column) -> Column:
    """The value, or null if evaluating it fails."""
    assert spark._jvm is not None
    expression = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(value._jc)
    return _column(spark, spark._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression))


def _column(spark: SparkSession, expression: Any) -> Column:
    assert spark._jvm is not None
    column: Column = Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
    return column
