"""Top-n: the first rows of each group in some order, with their ranks."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from penstock.engine.build.graph import (
    Graph,
    arrow_schema,
    check_key,
    quote,
    retracts_input,
    row_hash,
    user_columns,
    weight_of,
)
from penstock.engine.operators.contract import EVENTS, ROW_HASH, WEIGHT
from penstock.engine.operators.top import RANK, Top
from penstock.engine.state.columns import COUNT
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.lateness import correction_period, window_end

# The column of the single group in a ranking without groups.
_ALL = "_all"


def top(graph: Graph, rows: DataFrame, node: flow.Top) -> DataFrame:
    ranked_rows = rank_rows(graph, rows, node, node)
    if node.ties == "break":
        return ranked_rows
    # Equal rows share a rank and come as one row with a weight. All other nodes expect weights of 1 and -1.
    names = [quote(name) for name in ranked_rows.columns if name != WEIGHT]
    copies = F.array_repeat(F.signum(WEIGHT).cast("long"), F.abs(WEIGHT).cast("int"))
    return ranked_rows.select(*names, F.explode(copies).alias(WEIGHT))


def rank_rows(graph: Graph, rows: DataFrame, node: flow.Node, ranking: flow.Top) -> DataFrame:
    names, per = user_columns(rows), list(ranking.per) or [_ALL]
    order_columns = {f"_o{number}": order for number, order in enumerate(ranking.order)}
    rows = rows.select(
        *map(quote, names),
        *(F.expr(order.expression).alias(name) for name, order in order_columns.items()),
        *([] if ranking.per else [F.lit(0).alias(_ALL)]),
        weight_of(rows).cast("long").alias(COUNT),
        *([EVENTS] if EVENTS in rows.columns else []),
    )
    check_key(rows, per, f"{node.location}: top")
    _check_order(rows, order_columns, f"{node.location}: top")
    rows = rows.withColumns(
        {name: column for hidden in order_columns for name, column in _sortable(rows, hidden).items()}
    )
    changes = graph.partition_with_hashes(rows, per, row_hash(rows, names).alias(ROW_HASH))
    sort_by = tuple(
        (f"{name}{part}", order.descending) for name, order in order_columns.items() for part in ("_kind", "")
    )
    operator = Top(
        graph.state_name(node, "rows"),
        ranking.count,
        sort_by,
        ranking.ties == "keep",
        grows=not retracts_input(node),
        end=window_end(ranking.input, ranking.per),
        keep_after=correction_period(node),
    )
    columns = [field for field in arrow_schema(changes.schema) if field.name in names]
    fields = [*columns, pa.field(RANK, pa.int32()), pa.field(WEIGHT, pa.int64())]
    return graph.apply_operator(changes, operator, node, pa.schema(fields))


def _check_order(rows: DataFrame, order_columns: dict[str, flow.Order], where: str) -> None:
    """Refuse orders by which Arrow does not sort."""
    for name, order in order_columns.items():
        if isinstance(rows.schema[name].dataType, T.ArrayType | T.MapType):
            raise DeclarationError(
                f"{where}: rows are not ordered by lists or maps; '{order.expression}' is one",
                hint="order by something in it, such as element_at(numbers, 1)",
            )


def _sortable(rows: DataFrame, name: str) -> dict[str, Column]:
    """A column, and one to sort by before it, so that both sort as Spark does: nulls first, NaN last, -0.0 like 0.0."""
    kind = F.when(F.col(name).isNull(), 0)
    if not isinstance(rows.schema[name].dataType, T.FloatType | T.DoubleType):
        return {f"{name}_kind": kind.otherwise(1)}
    # Adding zero makes -0.0 the same as 0.0.
    zero = F.lit(0).cast(rows.schema[name].dataType)
    return {name: F.col(name) + zero, f"{name}_kind": kind.when(F.isnan(name), 2).otherwise(1)}
