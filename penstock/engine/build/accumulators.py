"""Which aggregates add up, and how: what Spark sums up in one epoch, how epochs are put together, how the value is made.

An aggregate that is not here, or not for this input, is evaluated by Spark over all rows of the groups that changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType

from penstock.engine.operators.contract import WEIGHT
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.engine.state.arrangement import Rule
from penstock.flow.expressions import Call

_ORDERED = (T.NumericType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
_SUMMED = (T.NumericType,)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A column of the state: what it is over the rows of one epoch (`None`: it comes from elsewhere), and its rule."""

    name: str
    aggregate: str | None
    rule: Rule
    type: str


@dataclass(frozen=True, slots=True)
class Accumulated:
    """A call as accumulators and the value they make. `distinct` are the expressions whose different values count."""

    value: str
    accumulators: tuple[Accumulator, ...] = ()
    distinct: tuple[str, ...] = field(default=())
    filter: str | None = None


def accumulated(call: Call, name: str, rows: DataFrame, *, sessions: bool) -> Accumulated | None:
    """How a call adds up over these rows; None where it does not."""
    if call.clause is not None:
        return None
    retracts = WEIGHT in rows.columns
    if call.function in ("count", "count_if"):
        return _count(call, name, retracts, sessions)
    if call.distinct or len(call.arguments) != 1:
        return None
    type_ = _type(rows, call.arguments[0])
    if call.function in ("sum", "avg", "mean") and isinstance(type_, _SUMMED):
        return _sum(call, name, rows, retracts)
    if call.function in ("min", "max") and isinstance(type_, _ORDERED) and not retracts:
        least: Rule = "min" if call.function == "min" else "max"
        return Accumulated(name, (Accumulator(name, call.text, least, type_.simpleString()),))
    return None


def _count(call: Call, name: str, retracts: bool, sessions: bool) -> Accumulated | None:
    if call.distinct:
        if sessions:
            return None
        accumulator = Accumulator(name, None, "sum", "bigint")
        return Accumulated(f"coalesce({name}, 0L)", (accumulator,), call.arguments, call.filter)
    if call.function == "count" and call.filter is None and call.arguments == ("1",):
        return Accumulated(COUNT)
    if call.function == "count_if":
        counted = f"({call.arguments[0]})"
    else:
        counted = " AND ".join(f"({one}) IS NOT NULL" for one in call.arguments)
    return Accumulated(name, (Accumulator(name, _counting(counted, call.filter, retracts), "sum", "bigint"),))


def _counting(condition: str, filter_: str | None, retracts: bool) -> str:
    whole = condition if filter_ is None else f"({condition}) AND ({filter_})"
    return f"coalesce(sum(CASE WHEN {whole} THEN {WEIGHT if retracts else '1L'} END), 0L)"


def _sum(call: Call, name: str, rows: DataFrame, retracts: bool) -> Accumulated:
    argument = call.arguments[0]
    type_ = _type(rows, argument)
    average = call.function != "sum"
    if average and not isinstance(type_, T.DecimalType):
        argument, type_ = f"CAST({argument} AS double)", T.DoubleType()
    total = _type(rows, f"sum({argument})", aggregate=True).simpleString()
    kept = "" if call.filter is None else f" FILTER (WHERE {call.filter})"
    summed = f"sum({argument}){kept}"
    if retracts:
        weighted = f"({argument}) * CAST({WEIGHT} AS {type_.simpleString()})"
        summed = f"CAST(sum({weighted}){kept} AS {total})"
    accumulators = [Accumulator(name, summed, "sum", total)]
    if not average and not retracts:
        return Accumulated(name, tuple(accumulators))
    # The sum of no values is null, and so is their average: how many there are must be known.
    number = f"{name}_count"
    accumulators.append(
        Accumulator(number, _counting(f"({argument}) IS NOT NULL", call.filter, retracts), "sum", "bigint")
    )
    value = f"CASE WHEN {number} <> 0 THEN {name} END"
    if average:
        result = _type(rows, f"avg({argument})", aggregate=True).simpleString()
        value = f"CASE WHEN {number} <> 0 THEN CAST({name} / {number} AS {result}) END"
    return Accumulated(value, tuple(accumulators))


def _type(rows: DataFrame, expression: str, *, aggregate: bool = False) -> DataType:
    typed = rows.groupBy().agg(F.expr(expression)) if aggregate else rows.select(F.expr(expression))
    return typed.schema[0].dataType

