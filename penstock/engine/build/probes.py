"""The way of rows from their topics to the first state, walked again to find those that fail, or that were late.

Each row carries where it is in the log. Expressions are guarded: one that fails gives null instead of ending the job,
so that a single job finds every row that fails. Users' functions are guarded in Spark's tasks, in `guarded.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build import rows as stateless
from penstock.engine.build.graph import ORIGIN, Graph, Needs, StateOf, columns_of_rows, hashable, quoted
from penstock.engine.build.guarded import TOPIC, guarding
from penstock.engine.build.sources import source
from penstock.engine.build.windows import last_moment, moment
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.state.columns import GONE
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, split_aggregates
from penstock.flow.lateness import lateness

STEP = "_step"
PLACE = (TOPIC, *ORIGIN)
_GUARD = "_guard"


@dataclass(frozen=True, slots=True)
class Suspects:
    """The rows that reach a node without state before them, None if there are no such; and those that failed before."""

    rows: DataFrame | None
    failed: tuple[DataFrame, ...] = ()


def find_failing(graph: Graph, plan: flow.Plan) -> DataFrame | None:
    """Rows on which an expression fails: `_topic`, `_partition`, `_offset`, and `_step`, the number of the node."""
    found: dict[flow.Node, Suspects] = {}
    failed: list[DataFrame] = []
    for number, node in enumerate(flow.nodes(plan)):
        found[node] = _walked(graph, node, found, number)
        failed += [one for one in found[node].failed if all(one is not other for other in failed)]
    return reduce(DataFrame.unionAll, failed).distinct() if failed else None


def find_late(graph: Graph, state: StateOf, watermark: int) -> DataFrame | None:
    """Rows that came too late for what a state keeps; None if all rows have met another state before.

    They have a place, unless a user's function before it has dropped that.
    """
    found: dict[flow.Node, Suspects] = {}
    given = flow.inputs(state.node)[state.input]
    for one in flow.upstream(given):
        found[one] = _passed(graph, one, found, through_state=False)
    rows = found[given].rows
    if rows is None:
        return None
    last = last_moment(moment(given.shape), _lateness(state.node, state.input))
    return rows.where(last <= F.lit(watermark))


def has_place(rows: DataFrame) -> bool:
    return set(PLACE) <= set(rows.columns)


def reached(graph: Graph, plan: flow.Plan, *, guard: bool = False) -> list[DataFrame]:
    """What evaluates every user's function that no state lies before: it may fail, unless the functions are guarded.

    And expressions behind a function that drops the rows' places, which no guard can help to find.
    """
    found: dict[flow.Node, Suspects] = {}
    frames = []
    for node in flow.nodes(plan):
        given = [found[one].rows for one in flow.inputs(node)]
        with guarding() if guard and isinstance(node, flow.Map) else nullcontext():
            found[node] = _passed(graph, node, found)
        rows = found[node].rows
        if isinstance(node, flow.Map) and rows is not None:
            frames.append(_evaluating(rows))
        elif len(given) == 1 and given[0] is not None and not has_place(given[0]):
            values = [one.alias(f"_{place}") for place, one in enumerate(_values(graph.spark, node, given[0]))]
            frames += [_evaluating(given[0].select(*values))] if values else []
    return frames


def _evaluating(rows: DataFrame) -> DataFrame:
    """A hash of all columns, so that Spark leaves none of them out."""
    return rows.groupBy().agg(F.max(F.xxhash64(*hashable(rows, rows.columns))).alias("_all"))


def _lateness(node: flow.Node, number: int) -> flow.Lateness:
    """When events that reach this input of a node are too late."""
    if isinstance(node, flow.Distinct):
        assert node.late is not None
        return node.late
    assert isinstance(node, flow.TimedJoin | flow.AsOfJoin | flow.Aggregate)
    return lateness(node, number)


def needs_everything(plan: flow.Plan) -> Needs:
    """All columns and the origin of all rows: to find a row, its place must be known."""
    every = tuple(flow.nodes(plan))
    return Needs(dict.fromkeys(every, frozenset({"*"})), frozenset(every))


def _walked(graph: Graph, node: flow.Node, found: Mapping[flow.Node, Suspects], number: int) -> Suspects:
    """The rows behind a node, its expressions guarded."""
    given = [found[one].rows for one in flow.inputs(node)]
    if len(given) != 1 or given[0] is None:
        return _passed(graph, node, found)
    values = list(_values(graph.spark, node, given[0]))
    if not values:
        return _passed(graph, node, found)
    if not has_place(given[0]):
        return Suspects(None)
    fields = [value.alias(f"_{place}") for place, value in enumerate(values)]
    checked = given[0].withColumn(_GUARD, guarded(graph.spark, F.struct(*fields)))
    failed = checked.where(F.col(_GUARD).isNull()).select(*PLACE, F.lit(number).alias(STEP))
    return Suspects(_sound(node, checked.where(F.col(_GUARD).isNotNull())), (failed,))


def _sound(node: flow.Node, checked: DataFrame) -> DataFrame | None:
    """The rows behind a node whose expressions were guarded; their values are taken from there.

    Evaluated a second time they would fail: Spark puts a filter that does not ask for the guard before it.
    """
    match node:
        case flow.Where():
            return checked.where(f"{_GUARD}._0").drop(_GUARD)
        case flow.Select():
            made = {one.name.lower(): f"{_GUARD}._{place}" for place, one in enumerate(node.columns)}
            left_out = {*made, _GUARD, *(name.lower() for name in node.without)}
            own = [name for name in checked.columns if node.rest or name.startswith("_")]
            kept = [quoted(name) for name in own if name.lower() not in left_out]
            return checked.select(*kept, *(F.expr(made[one.name.lower()]).alias(one.name) for one in node.columns))
        case _:
            return None


def _passed(
    graph: Graph, node: flow.Node, found: Mapping[flow.Node, Suspects], *, through_state: bool = True
) -> Suspects:
    """The rows behind a node, as far as they have met no state; or only such as gives some of the rows it gets."""
    if isinstance(node, flow.Topic | flow.Changelog):
        rows = source(graph, node).withColumn(TOPIC, F.lit(node.name))
        return Suspects(rows.where(~F.col(GONE)).drop(GONE) if isinstance(node, flow.Changelog) else rows)
    given = [found[one].rows for one in flow.inputs(node)]
    frames = [rows for rows in given if rows is not None]
    if not frames or (len(frames) < len(given) and not isinstance(node, flow.Union)):
        return Suspects(None)
    match node:
        case flow.Where():
            return Suspects(stateless.where(frames[0], node))
        case flow.Select():
            return Suspects(stateless.select(frames[0], node))
        case flow.Map():
            return Suspects(node.function(frames[0]))
        case flow.Latest() | flow.Distinct():
            # What comes out are rows that went in: at most those on which later expressions are evaluated.
            return Suspects(frames[0] if through_state and WEIGHT not in frames[0].columns else None)
        case flow.Union():
            if any(WEIGHT in rows.columns for rows in frames):
                return Suspects(None)
            names = [quoted(name) for name in columns_of_rows(frames[0])]
            place = PLACE if all(map(has_place, frames)) else ()
            return Suspects(reduce(DataFrame.unionAll, [rows.select(*names, *place) for rows in frames]))
        case _:
            return Suspects(None)


def _values(spark: SparkSession, node: flow.Node, rows: DataFrame) -> Iterator[Column]:
    """What a node evaluates on each row."""
    match node:
        case flow.Where():
            yield F.expr(node.condition)
        case flow.Select():
            yield from (F.expr(one.expression) for one in node.columns)
        case flow.Top():
            yield from (F.expr(one.expression) for one in node.order)
        case flow.Aggregate():
            yield from (F.expr(key.expression) for key in node.keys)
            for one in node.aggregates:
                for call in split_aggregates(one.expression).calls:
                    yield from _arguments(spark, call, rows)
                    if call.filter is not None:
                        yield F.expr(call.filter)


def _arguments(spark: SparkSession, call: Call, rows: DataFrame) -> Iterator[Column]:
    """The arguments of an aggregate as Spark evaluates them: it may have to cast them first."""
    analysed = rows.groupBy().agg(F.expr(call.text))._jdf.queryExecution().analyzed()
    children = analysed.aggregateExpressions().head().child().aggregateFunction().children()
    for place in range(children.size()):
        yield _column(spark, children.apply(place))


def guarded(spark: SparkSession, value: Column) -> Column:
    """The value in a struct, or null where evaluating it fails."""
    assert spark._jvm is not None
    expression = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(value._jc)
    return _column(spark, spark._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression))


def _column(spark: SparkSession, expression: Any) -> Column:
    assert spark._jvm is not None
    made: Column = Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
    return made
