"""Tables and rankings: the newest row of each key, the first of those that agree, the first in an order."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from penstock.engine.build.graph import (

    ORIGIN,
    Graph,
    arrow_schema,
    columns_of_rows,
    hashed,
    quoted,
    row_hash,
    weight_of,
)
from penstock.engine.build.windows import moment
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.operators.first import First
from penstock.engine.operators.newest import MOMENT, Newest
from penstock.engine.operators.rank import RANK, Rank
from penstock.engine.operators.regroup import ROW_HASH
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.flow import plan as flow

# How long after the watermark a row can still change which one of its kind was first.
DISTINCT_KEEP = 3_600_000_000


def changelog(graph: Graph, rows: DataFrame, node: flow.Changelog) -> DataFrame:
    """The last row of each key, in the order of the log; the rows have `_offset` and `_gone`."""
    return _newest(graph, rows.withColumn(MOMENT, F.lit(0).cast("long")), node, node.key)


def latest(graph: Graph, rows: DataFrame, node: flow.Latest) -> DataFrame:
    time = node.input.shape.time
    if WEIGHT in rows.columns:
        return _latest_of_changes(graph, rows, node, time)
    return _newest(graph, rows.withColumn(MOMENT, moment(node.input.shape)), node, node.key)


def _newest(graph: Graph, rows: DataFrame, node: flow.Node, key: tuple[str, ...]) -> DataFrame:
    keyed = hashed(graph.brought_together(rows, list(key)), list(key))
    operator = Newest(graph.state_name(node, "rows"), upserts=node in graph.upserted)
    columns = [one for one in arrow_schema(keyed.schema) if not one.name.startswith("_")]
    return graph.operated(keyed, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))


def _latest_of_changes(graph: Graph, rows: DataFrame, node: flow.Latest, time: str | None) -> DataFrame:
    """Where rows can be taken back, the second newest may become the newest again: the first of a ranking."""
    order = (flow.Order(quoted(time), descending=True),) if time else ()
    ranked = _ranked(graph, rows, node, count=1, order=order, per=node.key, ties=False)
    return ranked.drop(RANK)


def top(graph: Graph, rows: DataFrame, node: flow.Top) -> DataFrame:
    return _ranked(
        graph, rows, node, count=node.count, order=node.order, per=node.per, ties=node.ties == "keep"
    )


def _ranked(
    graph: Graph,
    rows: DataFrame,
    node: flow.Node,
    *,
    count: int,
    order: tuple[flow.Order, ...],
    per: tuple[str, ...],
    ties: bool,
) -> DataFrame:
    names = columns_of_rows(rows)
    sorting = {f"_o{number}": one for number, one in enumerate(order)}
    rows = rows.select(
        *map(quoted, names),
        *(F.expr(one.expression).alias(name) for name, one in sorting.items()),
        weight_of(rows).cast("long").alias(WEIGHT),
    )
    rows = rows.select("*", *(_kind_of_value(rows, name).alias(f"{name}_kind") for name in sorting))
    equal = [quoted(name) for name in rows.columns if name != WEIGHT]
    together = graph.brought_together(rows, list(per)).groupBy(*equal).agg(F.sum(WEIGHT).alias(COUNT))
    keyed = hashed(graph.brought_together(together, list(per)), list(per), row_hash(names).alias(ROW_HASH))
    by = [(f"{name}{suffix}", one.descending) for name, one in sorting.items() for suffix in ("_kind", "")]
    operator = Rank(graph.state_name(node, "rows"), count, tuple(by), ties, grows=not _retracts(node))
    columns = [one for one in arrow_schema(keyed.schema) if one.name in names]
    fields = [*columns, pa.field(RANK, pa.int32()), pa.field(WEIGHT, pa.int64())]
    return graph.operated(keyed, operator, node, pa.schema(fields))


def _kind_of_value(rows: DataFrame, name: str):  # type: ignore[no-untyped-def]
    """Nulls before values, and values before NaN, as Spark orders them."""
    kind = F.when(F.col(name).isNull(), 0).otherwise(1)
    if isinstance(rows.schema[name].dataType, T.FloatType | T.DoubleType):
        kind = F.when(F.col(name).isNull(), 0).when(F.isnan(name), 2).otherwise(1)
    return kind


def distinct(graph: Graph, rows: DataFrame, node: flow.Distinct) -> DataFrame:
    place = ORIGIN if set(ORIGIN) <= set(rows.columns) else ()
    names = columns_of_rows(rows)
    rows = rows.select(
        *map(quoted, [*names, *place]),
        moment(node.input.shape).alias(MOMENT),
        weight_of(rows).cast("long").alias(COUNT),
    )
    together = graph.brought_together(rows, list(node.columns))
    if not place:
        equal = [quoted(name) for name in rows.columns if name != COUNT]
        together = graph.brought_together(
            together.groupBy(*equal).agg(F.sum(COUNT).alias(COUNT)), list(node.columns)
        )
    keyed = hashed(together, list(node.columns), row_hash([*names, *place]).alias(ROW_HASH))
    operator = First(
        graph.state_name(node, "rows"),
        node.within,
        DISTINCT_KEEP,
        tuple(place),
        grows=not _retracts(node),
    )
    columns = [one for one in arrow_schema(keyed.schema) if one.name in (*names, *place)]
    return graph.operated(keyed, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))


def _retracts(node: flow.Node) -> bool:
    return any(one.shape.retracts for one in flow.inputs(node))


