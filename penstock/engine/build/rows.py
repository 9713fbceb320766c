"""Nodes without state: Spark evaluates each change on its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    arrow_schema,
    hidden_columns,
    map_in_arrow,
    quote,
    user_columns,
)
from penstock.engine.operators.contract import EVENTS, OFFSET, PARTITION, WEIGHT
from penstock.engine.run.tasks import assignment
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.needs import EVERYTHING, Columns, is_needed


def where(rows: DataFrame, node: flow.Where) -> DataFrame:
    return rows.where(node.condition)


def select(rows: DataFrame, node: flow.Select, needed: Columns = EVERYTHING) -> DataFrame:
    """Only the columns that later nodes need: those of which others are made may not have been read."""
    computed_columns = [
        F.expr(column.expression).alias(column.name) for column in node.columns if is_needed(column.name, needed)
    ]
    rest = []
    if node.rest:
        computed_names = {column.name.lower() for column in node.columns}
        left_out = computed_names | {name.lower() for name in node.without}
        rest = [quote(name) for name in user_columns(rows) if name.lower() not in left_out]
    return rows.select(*rest, *computed_columns, *hidden_columns(rows))


def map_rows(graph: Graph, rows: DataFrame, node: flow.Map) -> DataFrame:
    """The result of the user's function. It gets the hidden columns too, and must pass them on."""
    if EVENTS in rows.columns:
        # Rows that were counted before are mapped separately, so that the function need not distinguish them.
        parts = [map_rows(graph, rows.where(F.col(EVENTS) == F.lit(count)).drop(EVENTS), node) for count in (0, 1)]
        with_events = [part.withColumn(EVENTS, F.lit(count).cast("long")) for count, part in enumerate(parts)]
        return with_events[0].unionAll(with_events[1])
    result = node.function(rows)
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{node.location}: map: the function must return a DataFrame; it returned {type(result).__name__}"
        )
    missing = [name for name in hidden_columns(rows) if name not in result.columns]
    if missing:
        raise DeclarationError(
            f"{node.location}: map: the function dropped the hidden columns {', '.join(missing)}, "
            "which are needed later",
            hint='keep them: use withColumn, or end the list of columns with "_*" columns of the input',
        )
    # Tasks find their state by the number of their partition, so a function must not decide where rows are.
    return result if _partitioning(result) == _partitioning(rows) else graph.spread_rows(result)


def _partitioning(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().outputPartitioning().toString())


def union(branches: list[DataFrame], have_met_state: list[bool | None], needed: Columns = EVERYTHING) -> DataFrame:
    """Only the columns that later nodes need: nodes with state have others too, which sources do not read."""
    names = [name for name in user_columns(branches[0]) if is_needed(name, needed)]
    if any(WEIGHT in rows.columns for rows in branches):
        branches = [
            rows if WEIGHT in rows.columns else rows.withColumn(WEIGHT, F.lit(1).cast("long")) for rows in branches
        ]
    if len(set(have_met_state)) > 1 or None in have_met_state:
        # Rows that have passed through a state were counted there.
        branches = [
            rows if has_met is None else rows.withColumn(EVENTS, F.lit(0 if has_met else 1).cast("long"))
            for rows, has_met in zip(branches, have_met_state, strict=True)
        ]
    if all(set(ORIGIN) <= set(rows.columns) for rows in branches):
        # Rows of different branches may have the same origin, in two topics or in one that is read twice.
        branches = [
            rows.withColumn(PARTITION, F.col(PARTITION) * F.lit(len(branches)) + F.lit(number))
            for number, rows in enumerate(branches)
        ]
    shared_hidden = [name for name in (WEIGHT, EVENTS, *ORIGIN) if all(name in rows.columns for rows in branches)]
    columns = [*map(quote, names), *shared_hidden]
    return reduce(DataFrame.unionAll, [rows.select(*columns) for rows in branches])


def changes(rows: DataFrame, node: flow.Changes, *, origin: bool) -> DataFrame:
    names = [quote(name) for name in user_columns(rows)]
    if origin:
        # A change has no origin in the log. It comes after those of earlier epochs, and additions after retractions.
        is_added = (F.col(WEIGHT) > 0).cast("int")
        rows = _with_epoch_as_offset(
            rows.select(*names, WEIGHT, is_added.alias(PARTITION), F.lit(0).cast("long").alias(OFFSET))
        )
    kind = F.when(F.col(WEIGHT) > 0, "added").otherwise("removed")
    return rows.select(*names, kind.alias("change"), *(ORIGIN if origin else ()))


def _with_epoch_as_offset(rows: DataFrame) -> DataFrame:
    schema = arrow_schema(rows.schema)

    def set_offset(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = assignment().epoch
        for batch in batches:
            epochs = pa.array(np.full(batch.num_rows, epoch, dtype=np.int64))
            yield batch.set_column(batch.schema.get_field_index(OFFSET), OFFSET, epochs)

    return map_in_arrow(rows, set_offset, schema)
