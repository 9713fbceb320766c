"""The newest row of each key: of a table by the order of its log, of a stream by event time."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    arrow_schema,
    check_key,
    quote,
    row_hash,
    user_columns,
)
from penstock.engine.build.top import rank_rows
from penstock.engine.build.windows import moment
from penstock.engine.operators.contract import MOMENT, OFFSET, PARTITION, ROW_HASH, WEIGHT
from penstock.engine.operators.latest import Latest
from penstock.engine.operators.top import RANK
from penstock.flow import plan as flow


def changelog(graph: Graph, rows: DataFrame, node: flow.Changelog) -> DataFrame:
    """The last row of each key, in the order of the log; the rows have `_offset` and `_gone`."""
    return _latest_rows(graph, rows, node, node.key, (OFFSET,))


def latest(graph: Graph, rows: DataFrame, node: flow.Latest) -> DataFrame:
    if WEIGHT in rows.columns:
        return _latest_of_changes(graph, rows, node, node.input.shape.time)
    names = user_columns(rows)
    timed_rows = rows.withColumns({MOMENT: moment(node.input.shape), ROW_HASH: row_hash(rows, names)})
    # After a join rows have no origin in the log: those of the same time are ordered by a hash.
    origin = (OFFSET, PARTITION) if {*ORIGIN} <= {*rows.columns} else ()
    return _latest_rows(graph, timed_rows, node, node.key, (MOMENT, *origin, ROW_HASH))


def _latest_rows(
    graph: Graph, rows: DataFrame, node: flow.Node, key: tuple[str, ...], order: tuple[str, ...]
) -> DataFrame:
    check_key(rows, key, f"{node.location}")
    changes = graph.partition_with_hashes(rows, list(key))
    operator = Latest(graph.state_name(node, "rows"), upserts=node in graph.upserted_nodes, order=order)
    columns = [field for field in arrow_schema(changes.schema) if not field.name.startswith("_")]
    return graph.apply_operator(changes, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))


def _latest_of_changes(graph: Graph, rows: DataFrame, node: flow.Latest, time: str | None) -> DataFrame:
    """If rows can be retracted, the second newest may become the newest again. So it is the first of a ranking."""
    order = (flow.Order(quote(time), descending=True),) if time else ()
    ranked_rows = rank_rows(
        graph, rows, node, flow.Top(node.input, 1, order, node.key, "break", node.shape, node.location)
    )
    return ranked_rows.drop(RANK)
