"""The newest row of each key: of a table by the order of its log, of a stream by event time."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    arrow_schema,
    check_key,
    columns_of_rows,
    hashed,
    quoted,
    row_hash,
)
from penstock.engine.build.top import rank_rows
from penstock.engine.build.windows import moment
from penstock.engine.operators.contract import MOMENT, OFFSET, PARTITION, ROW_HASH, WEIGHT
from penstock.engine.operators.latest import Latest
from penstock.engine.operators.top import RANK
from penstock.flow import plan as flow


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
    operator = Latest(graph.state_name(node, "rows"), upserts=node in graph.upserted, order=order)
    columns = [one for one in arrow_schema(keyed.schema) if not one.name.startswith("_")]
    return graph.operated(keyed, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))


def _latest_of_changes(graph: Graph, rows: DataFrame, node: flow.Latest, time: str | None) -> DataFrame:
    """Where rows can be taken back, the second newest may become the newest again: the first of a ranking."""
    order = (flow.Order(quoted(time), descending=True),) if time else ()
    ranked = rank_rows(graph, rows, node, flow.Top(node.input, 1, order, node.key, "break", node.shape, node.place))
    return ranked.drop(RANK)
