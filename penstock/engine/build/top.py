"""The first rows of each group in an order, with their ranks."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from penstock.engine.build.graph import (
    Graph,
    arrow_schema,
    check_key,
    columns_of_rows,
    hashed,
    quoted,
    retracts_input,
    row_hash,
    weight_of,
)
from penstock.engine.operators.contract import EVENTS, ROW_HASH, WEIGHT
from penstock.engine.operators.top import RANK, Top
from penstock.engine.state.columns import COUNT
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.lateness import corrected_for, window_end

# A ranking without groups has one, which all rows are in.
_ALL = "_all"


def top(graph: Graph, rows: DataFrame, node: flow.Top) -> DataFrame:
    ranked = rank_rows(graph, rows, node, node)
    if node.ties == "break":
        return ranked
    # Equal rows share a rank and come as one with a weight; every other node counts on weights of 1 and -1.
    names = [quoted(name) for name in ranked.columns if name != WEIGHT]
    each = F.array_repeat(F.signum(WEIGHT).cast("long"), F.abs(WEIGHT).cast("int"))
    return ranked.select(*names, F.explode(each).alias(WEIGHT))


def rank_rows(graph: Graph, rows: DataFrame, node: flow.Node, ranking: flow.Top) -> DataFrame:
    names, per = columns_of_rows(rows), list(ranking.per) or [_ALL]
    sorting = {f"_o{number}": one for number, one in enumerate(ranking.order)}
    rows = rows.select(
        *map(quoted, names),
        *(F.expr(one.expression).alias(name) for name, one in sorting.items()),
        *([] if ranking.per else [F.lit(0).alias(_ALL)]),
        weight_of(rows).cast("long").alias(COUNT),
        *([EVENTS] if EVENTS in rows.columns else []),
    )
    check_key(rows, per, f"{node.place}: top")
    _check_order(rows, sorting, f"{node.place}: top")
    rows = rows.withColumns({name: column for one in sorting for name, column in _sortable(rows, one).items()})
    together = graph.brought_together(rows, per)
    keyed = hashed(together, per, row_hash(together, names).alias(ROW_HASH), graph.share(per))
    by = tuple((f"{name}{part}", one.descending) for name, one in sorting.items() for part in ("_kind", ""))
    operator = Top(
        graph.state_name(node, "rows"),
        ranking.count,
        by,
        ranking.ties == "keep",
        grows=not retracts_input(node),
        end=window_end(ranking.input, ranking.per),
        keep_after=corrected_for(node),
    )
    columns = [one for one in arrow_schema(keyed.schema) if one.name in names]
    fields = [*columns, pa.field(RANK, pa.int32()), pa.field(WEIGHT, pa.int64())]
    return graph.operated(keyed, operator, node, pa.schema(fields))


def _check_order(rows: DataFrame, sorting: dict[str, flow.Order], where: str) -> None:
    """Refuse to sort by what Arrow does not sort."""
    for name, one in sorting.items():
        if isinstance(rows.schema[name].dataType, T.ArrayType | T.MapType):
            raise DeclarationError(
                f"{where}: rows are not ordered by lists or maps; '{one.expression}' is one",
                hint="order by something in it, such as element_at(numbers, 1)",
            )


def _sortable(rows: DataFrame, name: str) -> dict[str, Column]:
    """A column and one before it that together sort as Spark does: nulls first, NaN last, and one zero."""
    kind = F.when(F.col(name).isNull(), 0)
    if not isinstance(rows.schema[name].dataType, T.FloatType | T.DoubleType):
        return {f"{name}_kind": kind.otherwise(1)}
    # Adding zero makes -0.0 the same as 0.0.
    zero = F.lit(0).cast(rows.schema[name].dataType)
    return {name: F.col(name) + zero, f"{name}_kind": kind.when(F.isnan(name), 2).otherwise(1)}
