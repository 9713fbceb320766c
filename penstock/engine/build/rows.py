"""Nodes without state: each change is dealt with on its own, by Spark."""

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
    columns_of_rows,
    hidden_of_rows,
    in_arrow,
    quoted,
)
from penstock.engine.build.needs import EVERYTHING, Columns, is_wanted
from penstock.engine.operators.contract import EVENTS, OFFSET, PARTITION, WEIGHT
from penstock.engine.run.tasks import assignment
from penstock.errors import DeclarationError
from penstock.flow import plan as flow


def where(rows: DataFrame, node: flow.Where) -> DataFrame:
    return rows.where(node.condition)


def select(rows: DataFrame, node: flow.Select, wanted: Columns = EVERYTHING) -> DataFrame:
    """Those of the columns that anybody wants: what the others are made of was perhaps not read."""
    made = [F.expr(one.expression).alias(one.name) for one in node.columns if is_wanted(one.name, wanted)]
    rest = []
    if node.rest:
        made_names = {one.name.lower() for one in node.columns}
        left_out = made_names | {name.lower() for name in node.without}
        rest = [quoted(name) for name in columns_of_rows(rows) if name.lower() not in left_out]
    return rows.select(*rest, *made, *hidden_of_rows(rows))


def mapped(graph: Graph, rows: DataFrame, node: flow.Map) -> DataFrame:
    """The user's function gets the hidden columns too and should pass them on."""
    if EVENTS in rows.columns:
        # Rows that were counted before and others go through it apart, so that it need not keep them apart.
        parts = [mapped(graph, rows.where(F.col(EVENTS) == F.lit(count)).drop(EVENTS), node) for count in (0, 1)]
        counted = [part.withColumn(EVENTS, F.lit(count).cast("long")) for count, part in enumerate(parts)]
        return counted[0].unionAll(counted[1])
    result = node.function(rows)
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{node.place}: map: the function must return a DataFrame; it returned {type(result).__name__}"
        )
    missing = [name for name in hidden_of_rows(rows) if name not in result.columns]
    if missing:
        raise DeclarationError(
            f"{node.place}: map: the function dropped the hidden columns {', '.join(missing)}, which are needed later",
            hint='keep them: use withColumn, or end the list of columns with "_*" columns of the input',
        )
    # Tasks find their state by the numbers of partitions, so a function may not decide where rows are.
    return result if _partitioning(result) == _partitioning(rows) else graph.spread(result)


def _partitioning(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().outputPartitioning().toString())


def union(branches: list[DataFrame], met: list[bool | None], wanted: Columns = EVERYTHING) -> DataFrame:
    """Those of the columns that anybody wants: what keeps state gives others too, and sources do not have them."""
    names = [name for name in columns_of_rows(branches[0]) if is_wanted(name, wanted)]
    if any(WEIGHT in rows.columns for rows in branches):
        branches = [
            rows if WEIGHT in rows.columns else rows.withColumn(WEIGHT, F.lit(1).cast("long")) for rows in branches
        ]
    if len(set(met)) > 1 or None in met:  # rows that have met state were counted there
        branches = [
            rows if has_met is None else rows.withColumn(EVENTS, F.lit(0 if has_met else 1).cast("long"))
            for rows, has_met in zip(branches, met, strict=True)
        ]
    if all(set(ORIGIN) <= set(rows.columns) for rows in branches):
        # Two rows of different branches may stand at the same place, in two topics or in one that is read twice.
        branches = [
            rows.withColumn(PARTITION, F.col(PARTITION) * F.lit(len(branches)) + F.lit(number))
            for number, rows in enumerate(branches)
        ]
    hidden = [name for name in (WEIGHT, EVENTS, *ORIGIN) if all(name in rows.columns for rows in branches)]
    columns = [*map(quoted, names), *hidden]
    return reduce(DataFrame.unionAll, [rows.select(*columns) for rows in branches])


def changes(rows: DataFrame, node: flow.Changes, *, origin: bool) -> DataFrame:
    names = [quoted(name) for name in columns_of_rows(rows)]
    if origin:
        # A change has no place in the log: it comes after those of earlier epochs, and what is added after what is not.
        added = (F.col(WEIGHT) > 0).cast("int")
        rows = _in_their_epoch(rows.select(*names, WEIGHT, added.alias(PARTITION), F.lit(0).cast("long").alias(OFFSET)))
    kind = F.when(F.col(WEIGHT) > 0, "added").otherwise("removed")
    return rows.select(*names, kind.alias("change"), *(ORIGIN if origin else ()))


def _in_their_epoch(rows: DataFrame) -> DataFrame:
    schema = arrow_schema(rows.schema)

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = assignment().epoch
        for batch in batches:
            epochs = pa.array(np.full(batch.num_rows, epoch, dtype=np.int64))
            yield batch.set_column(batch.schema.get_field_index(OFFSET), OFFSET, epochs)

    return in_arrow(rows, number, schema)
