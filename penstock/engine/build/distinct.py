"""The first of the rows that agree in some columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    arrow_schema,
    quote,
    retracts_input,
    row_hash,
    user_columns,
    weight_of,
    with_key_hashes,
)
from penstock.engine.build.windows import deadline_of, longest_lateness, moment
from penstock.engine.operators.contract import DEADLINE, EVENTS, MOMENT, ROW_HASH, WEIGHT
from penstock.engine.operators.distinct import Distinct
from penstock.engine.state.columns import COUNT
from penstock.flow import plan as flow

# A watermark that is never reached.
NEVER = 2**63 - 1
# A hash of the columns in which rows must agree, by which Spark partitions them.
_KEY = "_key"


def distinct(graph: Graph, rows: DataFrame, node: flow.Distinct) -> DataFrame:
    origin = ORIGIN if set(ORIGIN) <= set(rows.columns) else ()
    names, keys = user_columns(rows), list(node.columns)
    late, at = node.late, moment(node.input.shape)
    rows = rows.select(
        *map(quote, [*names, *origin]),
        at.alias(MOMENT),
        (F.lit(NEVER) if late is None else deadline_of(at, late)).alias(DEADLINE),
        row_hash(rows, keys).alias(_KEY),
        weight_of(rows).cast("long").alias(COUNT),
        *([EVENTS] if EVENTS in rows.columns else []),
    )
    partitioned_rows = graph.partition_by(rows, [_KEY])
    changes = with_key_hashes(
        partitioned_rows,
        keys,
        row_hash(partitioned_rows, [*names, *origin]).alias(ROW_HASH),
        graph.state_partition([_KEY]),
    )
    keep_after = 0 if late is None else longest_lateness(late)
    operator = Distinct(
        graph.state_name(node, "rows"), node.within, keep_after, tuple(origin), grows=not retracts_input(node)
    )
    columns = [field for field in arrow_schema(changes.schema) if field.name in (*names, *origin)]
    return graph.apply_operator(changes, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))
