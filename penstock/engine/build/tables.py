"""Tables and rankings: the newest row of each key, the first of those that agree, the first in an order."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    arrow_schema,
    check_key,
    columns_of_rows,
    hashed,
    quoted,
    row_hash,
    weight_of,
)
from penstock.engine.build.windows import last_moment, longest_lateness, moment
from penstock.engine.operators.contract import DEADLINE, EVENTS, MOMENT, OFFSET, PARTITION, ROW_HASH, WEIGHT
from penstock.engine.operators.first import First
from penstock.engine.operators.newest import Newest
from penstock.engine.operators.rank import RANK, Rank
from penstock.engine.state.columns import COUNT
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.timed import corrected_for, window_end

# A watermark that does not come.
NEVER = 2**63 - 1
# A ranking without groups has one, which all rows are in.
_ALL = "_all"
# Rows that agree in some columns agree in one hash of them, by which Spark brings them together.
_KEY = "_key"


def changelog(graph: Graph, rows: DataFrame, node: flow.Changelog) -> DataFrame:
    """The last row of each key, in the order of the log; the rows have `_offset` and `_gone`."""
    return _newest(graph, rows, node, node.key, (OFFSET,))


def latest(graph: Graph, rows: DataFrame, node: flow.Latest) -> DataFrame:
    if WEIGHT in rows.columns:
        return _latest_of_changes(graph, rows, node, node.input.shape.time)
    names = columns_of_rows(rows)
    timed = rows.withColumns({MOMENT: moment(node.input.shape), ROW_HASH: row_hash(rows, names)})
    # Behind a join rows have no place in the log: those with one time are told apart in some fixed way.
    place = (OFFSET, PARTITION) if {*ORIGIN} <= {*rows.columns} else ()
    return _newest(graph, timed, node, node.key, (MOMENT, *place, ROW_HASH))


def _newest(graph: Graph, rows: DataFrame, node: flow.Node, key: tuple[str, ...], order: tuple[str, ...]) -> DataFrame:
    check_key(rows, key, f"{node.place}")
    together = graph.brought_together(rows, list(key))
    keyed = hashed(together, list(key), graph.share(list(key)))
    operator = Newest(graph.state_name(node, "rows"), upserts=node in graph.upserted, order=order)
    columns = [one for one in arrow_schema(keyed.schema) if not one.name.startswith("_")]
    return graph.operated(keyed, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))


def _latest_of_changes(graph: Graph, rows: DataFrame, node: flow.Latest, time: str | None) -> DataFrame:
    """Where rows can be taken back, the second newest may become the newest again: the first of a ranking."""
    order = (flow.Order(quoted(time), descending=True),) if time else ()
    ranked = _ranked(graph, rows, node, flow.Top(node.input, 1, order, node.key, "break", node.shape, node.place))
    return ranked.drop(RANK)


def top(graph: Graph, rows: DataFrame, node: flow.Top) -> DataFrame:
    ranked = _ranked(graph, rows, node, node)
    if node.ties == "break":
        return ranked
    # Equal rows share a rank and come as one with a weight; every other node counts on weights of 1 and -1.
    names = [quoted(name) for name in ranked.columns if name != WEIGHT]
    each = F.array_repeat(F.signum(WEIGHT).cast("long"), F.abs(WEIGHT).cast("int"))
    return ranked.select(*names, F.explode(each).alias(WEIGHT))


def _ranked(graph: Graph, rows: DataFrame, node: flow.Node, ranking: flow.Top) -> DataFrame:
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
    operator = Rank(
        graph.state_name(node, "rows"),
        ranking.count,
        by,
        ranking.ties == "keep",
        grows=not _retracts(node),
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


def distinct(graph: Graph, rows: DataFrame, node: flow.Distinct) -> DataFrame:
    place = ORIGIN if set(ORIGIN) <= set(rows.columns) else ()
    names, by = columns_of_rows(rows), list(node.columns)
    late, at = node.late, moment(node.input.shape)
    rows = rows.select(
        *map(quoted, [*names, *place]),
        at.alias(MOMENT),
        (F.lit(NEVER) if late is None else last_moment(at, late)).alias(DEADLINE),
        row_hash(rows, by).alias(_KEY),
        weight_of(rows).cast("long").alias(COUNT),
        *([EVENTS] if EVENTS in rows.columns else []),
    )
    together = graph.brought_together(rows, [_KEY])
    keyed = hashed(together, by, row_hash(together, [*names, *place]).alias(ROW_HASH), graph.share([_KEY]))
    keep_after = 0 if late is None else longest_lateness(late)
    operator = First(graph.state_name(node, "rows"), node.within, keep_after, tuple(place), grows=not _retracts(node))
    columns = [one for one in arrow_schema(keyed.schema) if one.name in (*names, *place)]
    return graph.operated(keyed, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))


def _retracts(node: flow.Node) -> bool:
    return any(one.shape.retracts for one in flow.inputs(node))
