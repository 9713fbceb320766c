"""Lookups: the versions of a table's rows, and the events that find them, for the join of both."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import Graph, hidden_of_rows, quoted
from penstock.engine.build.joins import joined
from penstock.engine.build.sources import APPENDED, source
from penstock.engine.build.windows import NO_MOMENT, moment
from penstock.engine.operators.as_of import AGE, EVENT, AsOf, Events, Versions
from penstock.engine.operators.contract import MOMENT, OFFSET, PARTITION, WEIGHT, PairOperator
from penstock.engine.operators.sides import Columns
from penstock.engine.state.columns import GONE
from penstock.flow import plan as flow
from penstock.flow.names import unquoted


def look_up(graph: Graph, left: DataFrame, right: DataFrame, node: flow.AsOfJoin) -> DataFrame:
    """Events with what they find in a table, of which `right` has the versions (see `history`), or the newest rows."""
    keep: int | None = node.keep
    forgets, event = False, MOMENT
    if node.as_of is None:
        left, right = left.withColumn(MOMENT, _zero()), right.withColumns(_unaged(right, _zero()))
        keep = None
    else:
        # A null is before everything: there is nothing to find.
        asked = F.coalesce(F.unix_micros(F.col(quoted(node.as_of))), F.lit(NO_MOMENT - 1))
        left = left.withColumn(MOMENT, asked)
        forgets = node.as_of == node.left.shape.time and WEIGHT not in right.columns
        if node.as_of != node.left.shape.time:
            left, event = left.withColumn(EVENT, moment(node.left.shape)), EVENT

    def operator(ours: Columns, theirs: Columns) -> PairOperator:
        events = Columns({**ours.places, MOMENT: MOMENT, EVENT: ours.places.get(event, MOMENT)})
        versions = Columns({**theirs.places, MOMENT: MOMENT})
        return AsOf(
            Events(graph.state_name(node, "left"), events, keep),
            Versions(graph.state_name(node, "right"), versions, keep if forgets else None),
            "left" if node.how == "left" else "inner",
        )

    return joined(graph, left, right, operator, node)


def history(graph: Graph, node: flow.Node, rows_of: Callable[[flow.Node], DataFrame]) -> DataFrame:
    """All versions of a table's rows, with the moment from which they hold, and whether there is none from then on."""
    match node:
        case flow.Changelog():
            rows = source(graph, node, appended=True)
            began = F.coalesce(F.unix_micros(F.col(quoted(str(node.time)))), F.lit(NO_MOMENT))
            held = F.when(F.col(GONE), F.col(APPENDED)).otherwise(began)
            return rows.withColumns({MOMENT: held, AGE: _age(rows)}).drop(APPENDED)
        case flow.Latest():
            rows = rows_of(node.input)
            held = F.coalesce(F.unix_micros(F.col(quoted(str(node.shape.time)))), F.lit(NO_MOMENT))
            return rows.withColumns(_unaged(rows, held))
        case flow.Where():
            # What a condition hides still ends the version before it.
            rows = history(graph, node.input, rows_of)
            return rows.withColumn(GONE, ~F.coalesce(_of_what_counts(F.expr(node.condition)), F.lit(False)))
        case flow.Select():
            return _selected(history(graph, node.input, rows_of), node)
    raise AssertionError(node)


def _unaged(rows: DataFrame, held: Column) -> dict[str, Column]:
    """What versions have beside their columns, where they are not ended by anything but others."""
    return {MOMENT: held, GONE: F.lit(False), AGE: _age(rows)}


def _age(rows: DataFrame) -> Column:
    """Of two versions with one moment the later one in the log is newer. One that is taken back has no place there."""
    placed = {OFFSET, PARTITION} <= set(rows.columns) and WEIGHT not in rows.columns
    return F.expr(f"shiftleft({OFFSET}, 16) | {PARTITION}").cast("long") if placed else _zero()


def _zero() -> Column:
    return F.lit(0).cast("long")


def _selected(rows: DataFrame, node: flow.Select) -> DataFrame:
    def made(one: flow.Named) -> Column:
        value = F.expr(one.expression)
        return (value if unquoted(one.expression) is not None else _of_what_counts(value)).alias(one.name)

    return rows.select(*map(made, node.columns), *hidden_of_rows(rows))


def _of_what_counts(value: Column) -> Column:
    """The value for versions that count; of others it is not evaluated, which might fail."""
    return F.when(~F.col(GONE), value)
