"""The first of the rows that agree in some columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    arrow_schema,
    columns_of_rows,
    hashed,
    quoted,
    retracts_input,
    row_hash,
    weight_of,
)
from penstock.engine.build.windows import last_moment, longest_lateness, moment
from penstock.engine.operators.contract import DEADLINE, EVENTS, MOMENT, ROW_HASH, WEIGHT
from penstock.engine.operators.distinct import Distinct
from penstock.engine.state.columns import COUNT
from penstock.flow import plan as flow

# A watermark that does not come.
NEVER = 2**63 - 1
# Rows that agree in some columns agree in one hash of them, by which Spark brings them together.
_KEY = "_key"


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
    operator = Distinct(
        graph.state_name(node, "rows"), node.within, keep_after, tuple(place), grows=not retracts_input(node)
    )
    columns = [one for one in arrow_schema(keyed.schema) if one.name in (*names, *place)]
    return graph.operated(keyed, operator, node, pa.schema([*columns, pa.field(WEIGHT, pa.int64())]))
