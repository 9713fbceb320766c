"""As-of joins: the versions of a table's rows, and the events that look them up."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.contracts import COMMIT_TIME
from penstock.engine.build.graph import Graph, hidden_columns, quote
from penstock.engine.build.joins import join_sides
from penstock.engine.build.sources import APPENDED, source
from penstock.engine.build.windows import NO_MOMENT, moment
from penstock.engine.operators.as_of import AGE, EVENT, AsOf, Events, Versions
from penstock.engine.operators.contract import MOMENT, OFFSET, PARTITION, WEIGHT, PairOperator
from penstock.engine.operators.sides import SideColumns
from penstock.engine.state.columns import GONE
from penstock.flow import plan as flow
from penstock.flow.names import unquote


def as_of_join(graph: Graph, left: DataFrame, right: DataFrame, node: flow.AsOfJoin) -> DataFrame:
    """Events with the rows they find in a table: `right` has its versions (see `history`), or its newest rows."""
    keep: int | None = node.keep
    forgets, event = False, MOMENT
    if node.as_of is None:
        left, right = left.withColumn(MOMENT, _zero()), right.withColumns(_version_columns(right, _zero()))
        keep = None
    else:
        # A null is before all versions, and finds none.
        lookup_time = F.coalesce(F.unix_micros(F.col(quote(node.as_of))), F.lit(NO_MOMENT - 1))
        left = left.withColumn(MOMENT, lookup_time)
        forgets = node.as_of == node.left.shape.time and WEIGHT not in right.columns
        if node.as_of != node.left.shape.time:
            left, event = left.withColumn(EVENT, moment(node.left.shape)), EVENT

    def operator(left_columns: SideColumns, right_columns: SideColumns) -> PairOperator:
        events = SideColumns({**left_columns.slots, MOMENT: MOMENT, EVENT: left_columns.slots.get(event, MOMENT)})
        versions = SideColumns({**right_columns.slots, MOMENT: MOMENT})
        return AsOf(
            Events(graph.state_name(node, "left"), events, keep),
            Versions(graph.state_name(node, "right"), versions, keep if forgets else None),
            "left" if node.how == "left" else "inner",
        )

    return join_sides(graph, left, right, operator, node)


def history(graph: Graph, node: flow.Node, rows_of: Callable[[flow.Node], DataFrame]) -> DataFrame:
    """All versions of a table's rows, with the time from which they are valid, and whether they are deletions."""
    match node:
        case flow.Changelog():
            rows = source(graph, node, appended=True)
            time = F.unix_micros(F.col(quote(str(node.time))))
            # Only the deletes of captured tables say when they happened.
            ended = F.coalesce(time, F.col(APPENDED)) if node.time == COMMIT_TIME else F.col(APPENDED)
            valid_from = F.when(F.col(GONE), ended).otherwise(F.coalesce(time, F.lit(NO_MOMENT)))
            return rows.withColumns({MOMENT: valid_from, AGE: _age(rows)}).drop(APPENDED)
        case flow.Latest():
            rows = rows_of(node.input)
            valid_from = F.coalesce(F.unix_micros(F.col(quote(str(node.shape.time)))), F.lit(NO_MOMENT))
            return rows.withColumns(_version_columns(rows, valid_from))
        case flow.Where():
            # A version that the condition excludes still ends the one before it.
            rows = history(graph, node.input, rows_of)
            return rows.withColumn(GONE, ~F.coalesce(_if_valid(F.expr(node.condition)), F.lit(False)))
        case flow.Select():
            return _select_versions(history(graph, node.input, rows_of), node)
    raise AssertionError(node)


def _version_columns(rows: DataFrame, valid_from: Column) -> dict[str, Column]:
    """The hidden columns of versions that are not deletions."""
    return {MOMENT: valid_from, GONE: F.lit(False), AGE: _age(rows)}


def _age(rows: DataFrame) -> Column:
    """Of two versions of the same time the later one in the log is newer. One that is retracted has no origin there."""
    has_origin = {OFFSET, PARTITION} <= set(rows.columns) and WEIGHT not in rows.columns
    return F.expr(f"shiftleft({OFFSET}, 16) | {PARTITION}").cast("long") if has_origin else _zero()


def _zero() -> Column:
    return F.lit(0).cast("long")


def _select_versions(rows: DataFrame, node: flow.Select) -> DataFrame:
    def column_of(column: flow.Named) -> Column:
        value = F.expr(column.expression)
        return (value if unquote(column.expression) is not None else _if_valid(value)).alias(column.name)

    return rows.select(*map(column_of, node.columns), *hidden_columns(rows))


def _if_valid(value: Column) -> Column:
    """The value for versions that are not deletions; for others it is not evaluated, since that might fail."""
    return F.when(~F.col(GONE), value)
