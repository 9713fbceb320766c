"""Joins: the rows of both sides become one DataFrame with the columns of both, brought together by their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, LongType, StructField, StructType

from penstock.engine.build.graph import (
    Graph,
    arrow_schema,
    check_key,
    columns_of_rows,
    events_of,
    key_hashes,
    quoted,
    row_hash,
    weight_of,
)
from penstock.engine.build.windows import moment
from penstock.engine.operators.as_of import AGE, EVENT
from penstock.engine.operators.contract import EVENTS, HASH, MOMENT, ROW_HASH, SECOND_HASH, WEIGHT, PairOperator
from penstock.engine.operators.join import Bounds, Join, Side
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, NO_RIGHT_KEY, RIGHT, SIDE, Columns
from penstock.engine.state.columns import COUNT, GONE
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.shapes import joined_columns

_PLACE = "_c"  # how the columns begin that rows of both sides share

Operators = Callable[[Columns, Columns], PairOperator]
"""An operator, given where in the changes the columns of its sides are."""


def join(graph: Graph, left: DataFrame, right: DataFrame, node: flow.Join | flow.TimedJoin) -> DataFrame:
    """The pairs of rows that agree, and those without a partner that are asked for."""
    bounds = Bounds(node.before, node.after, node.keep) if isinstance(node, flow.TimedJoin) else None
    moments = {} if bounds is None else {MOMENT: MOMENT}

    def operator(ours: Columns, theirs: Columns) -> PairOperator:
        both = [
            Side(graph.state_name(node, which.strip("_")), Columns({**columns.places, **moments}), which, bounds)
            for which, columns in ((LEFT, ours), (RIGHT, theirs))
        ]
        return Join(both[0], both[1], node.how)

    if bounds is not None:
        left = left.withColumn(MOMENT, moment(node.left.shape))
        right = right.withColumn(MOMENT, moment(node.right.shape))
    return joined(graph, left, right, operator, node)


def joined(graph: Graph, left: DataFrame, right: DataFrame, operators: Operators, node: flow.AnyJoin) -> DataFrame:
    """Both sides brought together by what they are joined on, through an operator."""
    _check(left, right, node)
    ours, theirs = _columns(left, LEFT), _columns(right, RIGHT)
    types = [_types(left, ours), _types(right, theirs)]
    places = _shared(*types)
    counts = {
        name: value
        for name, hidden, value in ((COUNT, WEIGHT, weight_of), (EVENTS, EVENTS, events_of))
        if hidden in left.columns or hidden in right.columns
    }
    sides = [
        _side(rows, node, columns, place, {name: value(rows).cast("long") for name, value in counts.items()})
        for rows, columns, place in zip((left, right), (ours, theirs), places, strict=True)
    ]
    given = _united(graph, sides)
    operator = operators(*map(Columns, places))
    output = {name: type_ for side in types for name, type_ in side.items() if name.startswith((LEFT, RIGHT))}
    found = graph.joined(given, operator, node, _answer(output, node))
    return _named(graph, found, left, right, node)


def _columns(rows: DataFrame, which: str) -> dict[str, Column]:
    """The columns of one side under hidden names, and what else is kept of it."""
    own = {f"{which}{number}": F.col(quoted(name)) for number, name in enumerate(columns_of_rows(rows))}
    return {**own, **{name: F.col(name) for name in (EVENT, AGE, GONE) if name in rows.columns}}


def _types(rows: DataFrame, columns: dict[str, Column]) -> dict[str, DataType]:
    schema = rows.select(*(column.alias(name) for name, column in columns.items())).schema
    return {one.name: one.dataType for one in schema}


def _shared(left: dict[str, DataType], right: dict[str, DataType]) -> list[dict[str, str]]:
    """Where columns stand in rows that may be of either side: those of one type share places, so that few are null."""
    taken: dict[tuple[DataType, int], str] = {}
    sides = []
    for types in (left, right):
        seen: Counter[DataType] = Counter()
        places = {}
        for name, type_ in types.items():
            places[name] = taken.setdefault((type_, seen[type_]), f"{_PLACE}{len(taken)}")
            seen[type_] += 1
        sides.append(places)
    return sides


def _united(graph: Graph, sides: list[DataFrame]) -> DataFrame:
    """The rows of both sides, brought together by their keys."""
    types = {one.name: one.dataType for side in sides for one in side.schema}
    same = [
        side.select(
            *(
                F.col(name) if name in side.columns else F.lit(None).cast(type_).alias(name)
                for name, type_ in types.items()
            )
        )
        for side in sides
    ]
    together = graph.brought_together(same[0].unionAll(same[1]), [HASH])
    return together.select("*", graph.share([HASH]))


def _check(left: DataFrame, right: DataFrame, node: flow.AnyJoin) -> None:
    """What could not be known when the join was declared."""
    try:
        joined_columns(tuple(columns_of_rows(left)), tuple(columns_of_rows(right)), node.on, node.how)
    except DeclarationError as error:
        raise DeclarationError(f"{node.place}: join: {error.message}", hint=error.hint) from None
    for rows, names in ((left, [one.left for one in node.on]), (right, [one.right for one in node.on])):
        check_key(rows, names, f"{node.place}: join")
    for one in node.on:
        types = [left.schema[one.left].dataType.simpleString(), right.schema[one.right].dataType.simpleString()]
        if types[0] != types[1]:
            raise DeclarationError(
                f"{node.place}: join: columns that are joined on have one type; '{one.left}' is {types[0]} and "
                f"'{one.right}' is {types[1]}",
                hint=f'make them equal before: .with_columns({one.right}="CAST({one.right} AS {types[0]})")',
            )


def _side(
    rows: DataFrame, node: flow.AnyJoin, columns: dict[str, Column], places: dict[str, str], counts: dict[str, Column]
) -> DataFrame:
    """The rows of one side: its columns at their places, and hashes of what is joined on and of the whole row."""
    left = f"{RIGHT}0" not in columns
    on = [one.left if left else one.right for one in node.on]
    # Versions that differ only in when they held are different.
    ages = [name for name in (MOMENT, AGE, GONE) if GONE in columns]
    whole, (first, second) = row_hash(rows, [*columns_of_rows(rows), *ages]), key_hashes(rows, on)
    if isinstance(node, flow.AsOfJoin) or not node.nulls_match:
        null = _any_null(on)
        first = F.when(null, whole).otherwise(first)
        second = F.when(null, F.lit(NO_LEFT_KEY if left else NO_RIGHT_KEY).cast("long")).otherwise(second)
    return rows.select(
        F.lit(not left).alias(SIDE),
        first.alias(HASH),
        second.alias(SECOND_HASH),
        whole.alias(ROW_HASH),
        *(column.alias(name) for name, column in counts.items()),
        *([MOMENT] if MOMENT in rows.columns else []),
        *(column.alias(places[name]) for name, column in columns.items()),
    )


def _any_null(names: list[str]) -> Column:
    return reduce(Column.__or__, (F.col(quoted(name)).isNull() for name in names))


def _answer(columns: dict[str, DataType], node: flow.AnyJoin) -> pa.Schema:
    """What the operator gives: the columns of both sides, or of the left one only."""
    wanted = (LEFT,) if node.how in ("semi", "anti") else (LEFT, RIGHT)
    fields = [StructField(name, type_) for name, type_ in columns.items() if name.startswith(wanted)]
    return arrow_schema(StructType([*fields, StructField(WEIGHT, LongType())]))


def _named(graph: Graph, found: DataFrame, left: DataFrame, right: DataFrame, node: flow.AnyJoin) -> DataFrame:
    """The answer under the names of the user. A column that both sides are joined on by one name stands once."""
    ours = {name: f"{LEFT}{number}" for number, name in enumerate(columns_of_rows(left))}
    theirs = {name: f"{RIGHT}{number}" for number, name in enumerate(columns_of_rows(right))}
    if node.how in ("semi", "anti"):
        theirs = {}
    # Where the left row may be missing, the right one has the value.
    columns = {**theirs, **ours} if node.how != "right" else {**ours, **theirs}
    columns = {name: columns[name] for name in (*ours, *(name for name in theirs if name not in ours))}
    both = set(ours) & set(theirs) if node.how == "full" else set()
    values = [
        F.coalesce(ours[name], theirs[name]) if name in both else F.col(hidden) for name, hidden in columns.items()
    ]
    named = [value.alias(name) for name, value in zip(columns, values, strict=True)]
    rows = found.select(*named, *([WEIGHT] if node.shape.retracts else []))
    if not both:
        graph.operations[rows] = replace(graph.operations[found], columns={**columns, WEIGHT: WEIGHT})
    return rows
