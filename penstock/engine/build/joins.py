"""Joins: the rows of both sides become one DataFrame with the columns of both, partitioned by their keys."""

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
    events_of,
    key_hashes,
    quote,
    row_hash,
    user_columns,
    weight_of,
)
from penstock.engine.build.windows import moment
from penstock.engine.operators.as_of import AGE, EVENT
from penstock.engine.operators.contract import EVENTS, HASH, MOMENT, ROW_HASH, SECOND_HASH, WEIGHT, PairOperator
from penstock.engine.operators.join import Bounds, Join, Side
from penstock.engine.operators.sides import LEFT, NO_LEFT_KEY, NO_RIGHT_KEY, RIGHT, SIDE, SideColumns
from penstock.engine.state.columns import COUNT, GONE
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.lateness import timed_join_memory
from penstock.flow.shapes import joined_columns

_SLOT = "_c"  # prefix of the columns that rows of both sides share

OperatorFactory = Callable[[SideColumns, SideColumns], PairOperator]
"""Makes an operator, given the slots of the columns of both sides."""


def join(graph: Graph, left: DataFrame, right: DataFrame, node: flow.Join | flow.TimedJoin) -> DataFrame:
    """The pairs of rows with the same key, and rows without a partner as the kind of join says."""
    bounds, kept_for = None, (0, 0)
    if isinstance(node, flow.TimedJoin):
        bounds = Bounds(node.before, node.after, node.keep)
        kept_for = timed_join_memory(node.how, node.before, node.after, node.keep)
    moments = {} if bounds is None else {MOMENT: MOMENT}

    def operator(left_columns: SideColumns, right_columns: SideColumns) -> PairOperator:
        sides = [
            Side(
                graph.state_name(node, prefix.strip("_")),
                SideColumns({**columns.slots, **moments}),
                prefix,
                bounds,
                kept,
            )
            for prefix, columns, kept in zip((LEFT, RIGHT), (left_columns, right_columns), kept_for, strict=True)
        ]
        return Join(sides[0], sides[1], node.how)

    if bounds is not None:
        left = left.withColumn(MOMENT, moment(node.left.shape))
        right = right.withColumn(MOMENT, moment(node.right.shape))
    return join_sides(graph, left, right, operator, node)


def join_sides(
    graph: Graph, left: DataFrame, right: DataFrame, operator_for: OperatorFactory, node: flow.AnyJoin
) -> DataFrame:
    """Partition both sides by what they are joined on, and apply an operator."""
    _check_join(left, right, node)
    left_columns, right_columns = _columns_of_side(left, LEFT), _columns_of_side(right, RIGHT)
    types = [_types(left, left_columns), _types(right, right_columns)]
    slots = _assign_slots(*types)
    counts = {
        name: value
        for name, hidden_name, value in ((COUNT, WEIGHT, weight_of), (EVENTS, EVENTS, events_of))
        if hidden_name in left.columns or hidden_name in right.columns
    }
    sides = []
    for rows, columns, slots_of_side in zip((left, right), (left_columns, right_columns), slots, strict=True):
        values = {name: value(rows).cast("long") for name, value in counts.items()}
        sides.append(_rows_of_side(rows, node, columns, slots_of_side, values))
    changes = _union_sides(graph, sides)
    operator = operator_for(*map(SideColumns, slots))
    output = {name: type_ for side in types for name, type_ in side.items() if name.startswith((LEFT, RIGHT))}
    pairs = graph.apply_pair_operator(changes, operator, node, _answer_schema(output, node))
    return _name_columns(graph, pairs, left, right, node)


def _columns_of_side(rows: DataFrame, prefix: str) -> dict[str, Column]:
    """The columns of one side under hidden names, and the hidden ones that its state holds."""
    renamed_columns = {f"{prefix}{number}": F.col(quote(name)) for number, name in enumerate(user_columns(rows))}
    return {**renamed_columns, **{name: F.col(name) for name in (EVENT, AGE, GONE) if name in rows.columns}}


def _types(rows: DataFrame, columns: dict[str, Column]) -> dict[str, DataType]:
    schema = rows.select(*(column.alias(name) for name, column in columns.items())).schema
    return {field.name: field.dataType for field in schema}


def _assign_slots(left: dict[str, DataType], right: dict[str, DataType]) -> list[dict[str, str]]:
    """The slots of the columns of each side. Columns of the same type share slots, so that few values are null."""
    slots: dict[tuple[DataType, int], str] = {}
    sides = []
    for types in (left, right):
        used_slots: Counter[DataType] = Counter()
        slots_of_side = {}
        for name, type_ in types.items():
            slots_of_side[name] = slots.setdefault((type_, used_slots[type_]), f"{_SLOT}{len(slots)}")
            used_slots[type_] += 1
        sides.append(slots_of_side)
    return sides


def _union_sides(graph: Graph, sides: list[DataFrame]) -> DataFrame:
    """The rows of both sides, partitioned by their keys."""
    types = {field.name: field.dataType for side in sides for field in side.schema}
    aligned_sides = [
        side.select(
            *(
                F.col(name) if name in side.columns else F.lit(None).cast(type_).alias(name)
                for name, type_ in types.items()
            )
        )
        for side in sides
    ]
    partitioned_rows = graph.partition_by(aligned_sides[0].unionAll(aligned_sides[1]), [HASH])
    return partitioned_rows.select("*", graph.state_partition([HASH]))


def _check_join(left: DataFrame, right: DataFrame, node: flow.AnyJoin) -> None:
    """Check what could not be known when the join was declared."""
    try:
        joined_columns(tuple(user_columns(left)), tuple(user_columns(right)), node.on, node.how)
    except DeclarationError as error:
        raise DeclarationError(f"{node.location}: join: {error.message}", hint=error.hint) from None
    for rows, names in ((left, [pair.left for pair in node.on]), (right, [pair.right for pair in node.on])):
        check_key(rows, names, f"{node.location}: join")
    for pair in node.on:
        types = [left.schema[pair.left].dataType.simpleString(), right.schema[pair.right].dataType.simpleString()]
        if types[0] != types[1]:
            raise DeclarationError(
                f"{node.location}: join: columns that are joined on have one type; '{pair.left}' is {types[0]} and "
                f"'{pair.right}' is {types[1]}",
                hint=f'make them equal before: .with_columns({pair.right}="CAST({pair.right} AS {types[0]})")',
            )


def _rows_of_side(
    rows: DataFrame, node: flow.AnyJoin, columns: dict[str, Column], slots: dict[str, str], counts: dict[str, Column]
) -> DataFrame:
    """The rows of one side: its columns in their slots, and hashes of the key and of the whole row."""
    is_left = f"{RIGHT}0" not in columns
    on = [pair.left if is_left else pair.right for pair in node.on]
    # Versions that only differ in the time from which they are valid are different rows.
    ages = [name for name in (MOMENT, AGE, GONE) if GONE in columns]
    hash_of_row, (first, second) = row_hash(rows, [*user_columns(rows), *ages]), key_hashes(rows, on)
    if isinstance(node, flow.AsOfJoin) or not node.nulls_match:
        null = _any_null(on)
        first = F.when(null, hash_of_row).otherwise(first)
        second = F.when(null, F.lit(NO_LEFT_KEY if is_left else NO_RIGHT_KEY).cast("long")).otherwise(second)
    return rows.select(
        F.lit(not is_left).alias(SIDE),
        first.alias(HASH),
        second.alias(SECOND_HASH),
        hash_of_row.alias(ROW_HASH),
        *(column.alias(name) for name, column in counts.items()),
        *([MOMENT] if MOMENT in rows.columns else []),
        *(column.alias(slots[name]) for name, column in columns.items()),
    )


def _any_null(names: list[str]) -> Column:
    return reduce(Column.__or__, (F.col(quote(name)).isNull() for name in names))


def _answer_schema(columns: dict[str, DataType], node: flow.AnyJoin) -> pa.Schema:
    """The columns that the operator emits: those of both sides, or of the left one only."""
    prefixes = (LEFT,) if node.how in ("semi", "anti") else (LEFT, RIGHT)
    fields = [StructField(name, type_) for name, type_ in columns.items() if name.startswith(prefixes)]
    return arrow_schema(StructType([*fields, StructField(WEIGHT, LongType())]))


def _name_columns(graph: Graph, pairs: DataFrame, left: DataFrame, right: DataFrame, node: flow.AnyJoin) -> DataFrame:
    """The pairs under the user's names. A column that both sides are joined on under one name occurs once."""
    left_names = {name: f"{LEFT}{number}" for number, name in enumerate(user_columns(left))}
    right_names = {name: f"{RIGHT}{number}" for number, name in enumerate(user_columns(right))}
    if node.how in ("semi", "anti"):
        right_names = {}
    # If the left row may be missing, the right one has the value.
    columns = {**right_names, **left_names} if node.how != "right" else {**left_names, **right_names}
    columns = {name: columns[name] for name in (*left_names, *(name for name in right_names if name not in left_names))}
    in_both = set(left_names) & set(right_names) if node.how == "full" else set()
    values = [
        F.coalesce(left_names[name], right_names[name]) if name in in_both else F.col(hidden)
        for name, hidden in columns.items()
    ]
    renamed_columns = [value.alias(name) for name, value in zip(columns, values, strict=True)]
    rows = pairs.select(*renamed_columns, *([WEIGHT] if node.shape.retracts else []))
    if not in_both:
        graph.operations[rows] = replace(graph.operations[pairs], columns={**columns, WEIGHT: WEIGHT})
    return rows
