"""Nodes without state: each change is dealt with on its own, by Spark."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import ORIGIN, columns_of_rows, hidden_of_rows, quoted
from penstock.engine.operators.contract import WEIGHT
from penstock.errors import DeclarationError
from penstock.flow import plan as flow


def where(rows: DataFrame, node: flow.Where) -> DataFrame:
    return rows.where(node.condition)


def select(rows: DataFrame, node: flow.Select) -> DataFrame:
    made = [F.expr(one.expression).alias(one.name) for one in node.columns]
    rest = []
    if node.rest:
        made_names = {one.name.lower() for one in node.columns}
        left_out = made_names | {name.lower() for name in node.without}
        rest = [quoted(name) for name in columns_of_rows(rows) if name.lower() not in left_out]
    return rows.select(*rest, *made, *hidden_of_rows(rows))


def mapped(rows: DataFrame, node: flow.Map) -> DataFrame:
    """The user's function gets the hidden columns too and should pass them on."""
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
    return result


def union(branches: list[DataFrame], node: flow.Union) -> DataFrame:
    names = columns_of_rows(branches[0])
    weighted = any(WEIGHT in rows.columns for rows in branches)
    origin = all(set(ORIGIN) <= set(rows.columns) for rows in branches)
    extra = [*([WEIGHT] if weighted else []), *(ORIGIN if origin else ())]
    if weighted:
        branches = [
            rows if WEIGHT in rows.columns else rows.withColumn(WEIGHT, F.lit(1).cast("long")) for rows in branches
        ]
    columns = [*map(quoted, names), *extra]
    return reduce(DataFrame.unionAll, [rows.select(*columns) for rows in branches])


def changes(rows: DataFrame, node: flow.Changes) -> DataFrame:
    names = [quoted(name) for name in columns_of_rows(rows)]
    kind = F.when(F.col(WEIGHT) > 0, "added").otherwise("removed")
    return rows.select(*names, F.explode(F.array_repeat(kind, F.abs(F.col(WEIGHT)).cast("int"))).alias("change"))

