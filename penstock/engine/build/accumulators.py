"""How aggregates add up: what Spark sums up in an epoch, how epochs are combined, how a value is made.

Which of them do, `flow/accumulators.py` says; here the types of their arguments are known as well. Spark evaluates all
others over all rows of the groups that changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType

from penstock.engine.build.graph import has_map
from penstock.engine.build.hyperloglog import bits_of, estimate, rank_of, register_of
from penstock.engine.build.sketches import gather_sql, join_sql
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.state.columns import COUNT
from penstock.engine.state.combine import Rule
from penstock.flow.accumulators import adds_up
from penstock.flow.expressions import Call

_ORDERED = (T.NumericType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
_EXTREMES: dict[str, Rule] = {"min": "min", "max": "max"}
_FRACTIONS = (T.FloatType, T.DoubleType)
_NARROW = (T.ByteType, T.ShortType, T.IntegerType)
_BITMAPS: dict[str, Rule] = {"bitmap_and_agg": "and", "bitmap_construct_agg": "or", "bitmap_or_agg": "or"}
# With this many digits more than the result has, a quotient that is rounded twice is almost never off by one.
_SPARE_DIGITS = 12
_DEVIATION = "0.05"  # what `approx_count_distinct` allows by default


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A column of the state: its aggregate over the rows of one epoch (None: it comes from elsewhere), and its rule.

    `gather` combines the parts of an epoch. If the rule is only that the newest value counts, `join` merges the stored
    value into the new one first.
    """

    name: str
    aggregate: str | None
    rule: Rule
    type: str
    gather: str
    join: str | None = None


@dataclass(frozen=True, slots=True)
class Accumulated:
    """A call as accumulators, and `value`, the expression that makes its result from them.

    `distinct` are the expressions whose different values are counted. With a `rank`, the greatest rank of each value
    counts instead.
    """

    value: str
    accumulators: tuple[Accumulator, ...] = ()
    distinct: tuple[str, ...] = ()
    rank: str | None = None
    filter: str | None = None


def as_accumulators(call: Call, name: str, rows: DataFrame, *, sessions: bool) -> Accumulated | None:
    """How a call adds up over these rows; None if it does not, by its function or by the types of its arguments."""
    retracts = WEIGHT in rows.columns
    if not adds_up(call, retracts=retracts, sessions=sessions):
        return None
    if call.distinct:
        return _count_distinct(call, name)
    if call.function == "approx_count_distinct":
        return _approximate_count(call, name, rows)
    if call.function in ("count", "count_if"):
        return _count(call, name, retracts)
    if call.function in _BITMAPS:
        return Accumulated(name, (_bitmap(call, name),))
    if (gather := gather_sql(call, name)) is not None:
        return Accumulated(name, (_sketch(call, name, gather),))
    if len(call.arguments) != 1:
        return None
    type_ = _type(rows, call.arguments[0])
    if call.function == "sum" and isinstance(type_, T.NumericType):
        return _sum(call, name, rows, retracts)
    if call.function in ("avg", "mean") and isinstance(type_, T.NumericType):
        return _average(call, name, rows, retracts)
    if call.function in _EXTREMES and isinstance(type_, _ORDERED):
        return Accumulated(name, (_accumulator(name, call.text, _EXTREMES[call.function], type_.simpleString()),))
    return None


def _accumulator(name: str, aggregate: str | None, rule: Rule, type_: str) -> Accumulator:
    return Accumulator(name, aggregate, rule, type_, gather=f"{rule}({name})")


def _count_distinct(call: Call, name: str) -> Accumulated:
    """The number of different values, which are kept as hashes."""
    counter = _accumulator(name, None, "sum", "bigint")
    return Accumulated(f"coalesce({name}, 0L)", (counter,), call.arguments, filter=call.filter)


def _approximate_count(call: Call, name: str, rows: DataFrame) -> Accumulated | None:
    value, *more = call.arguments
    bits = bits_of(more[0] if more else _DEVIATION)
    if bits is None or has_map(_type(rows, value)):
        return None
    sum_, used = _accumulator(name, None, "sum", "double"), _accumulator(f"{name}_used", None, "sum", "bigint")
    return Accumulated(
        estimate(bits, sum_.name, used.name),
        (sum_, used),
        distinct=(register_of(value, bits),),
        rank=rank_of(value, bits),
        filter=call.filter,
    )


def _bitmap(call: Call, name: str) -> Accumulator:
    rule = _BITMAPS[call.function]
    return Accumulator(name, call.text, rule, "binary", gather=f"bitmap_{rule}_agg({name})")


def _sketch(call: Call, name: str, gather: str) -> Accumulator:
    return Accumulator(name, call.text, "same", "binary", gather, join_sql(call, name))


def _count(call: Call, name: str, retracts: bool) -> Accumulated:
    if call.function == "count" and call.filter is None and call.arguments == ("1",):
        return Accumulated(COUNT)
    if call.function == "count_if":
        counted = f"({call.arguments[0]})"
    else:
        counted = " AND ".join(f"({argument}) IS NOT NULL" for argument in call.arguments)
    return Accumulated(name, (_accumulator(name, _counting_sum(counted, call.filter, retracts), "sum", "bigint"),))


def _sum(call: Call, name: str, rows: DataFrame, retracts: bool) -> Accumulated | None:
    (argument,) = call.arguments
    sums, total = _total(call, name, rows, argument, retracts)
    if not retracts:
        return Accumulated(total, sums)
    if isinstance(_type(rows, argument), _FRACTIONS):
        return None  # taking 1e20 back leaves the rounding error it caused, and NaN never goes away
    number, result = _value_count(call, name, argument, retracts), _type(rows, f"sum({argument})", aggregate=True)
    return Accumulated(
        f"CASE WHEN {number.name} <> 0 THEN CAST({total} AS {result.simpleString()}) END", (*sums, number)
    )


def _average(call: Call, name: str, rows: DataFrame, retracts: bool) -> Accumulated | None:
    (argument,) = call.arguments
    type_, result = _type(rows, argument), _type(rows, f"avg({argument})", aggregate=True)
    if isinstance(type_, T.DecimalType):
        quotient = _type(rows, f"sum({argument}) / count(1)", aggregate=True)
        if not _has_spare_digits(quotient, result):
            return None
    elif isinstance(type_, _FRACTIONS) and retracts:
        return None
    elif not retracts:
        argument = f"CAST({argument} AS double)"
    sums, total = _total(call, name, rows, argument, retracts)
    number = _value_count(call, name, argument, retracts)
    dividend = total if isinstance(type_, T.DecimalType) else f"CAST({total} AS double)"
    value = f"CASE WHEN {number.name} <> 0 THEN CAST({dividend} / {number.name} AS {result.simpleString()}) END"
    return Accumulated(value, (*sums, number))


def _has_spare_digits(quotient: DataType, result: DataType) -> bool:
    """Whether a quotient has enough more digits than its result to be rounded twice."""
    assert isinstance(quotient, T.DecimalType) and isinstance(result, T.DecimalType)
    return quotient.scale >= result.scale + _SPARE_DIGITS


def _total(
    call: Call, name: str, rows: DataFrame, argument: str, retracts: bool
) -> tuple[tuple[Accumulator, ...], str]:
    """The accumulators of a sum, and the expression that makes it from them."""
    type_ = _type(rows, argument)
    if retracts and isinstance(type_, T.LongType):
        return _long_total(call, name, argument)
    signed = argument
    if retracts:
        # The least number of a narrow type has no opposite in it.
        wide = f"CAST({argument} AS bigint)" if isinstance(type_, _NARROW) else f"({argument})"
        signed = f"CASE WHEN {WEIGHT} > 0 THEN {wide} ELSE -{wide} END"
    result = _type(rows, f"sum({argument})", aggregate=True).simpleString()
    return (_accumulator(name, f"sum({signed}){_filter_clause(call)}", "sum", result),), name


def _long_total(call: Call, name: str, argument: str) -> tuple[tuple[Accumulator, ...], str]:
    """The upper and lower halves of long numbers, summed separately, and the decimal that they make.

    What an epoch adds or takes back may overflow a long number, even if the sums before and after it do not.
    """
    upper, lower = f"shiftright({argument}, 32)", f"(({argument}) & 4294967295L)"
    parts = {f"{name}_upper": upper, f"{name}_lower": lower}
    sums = tuple(
        _accumulator(
            part, f"sum(CASE WHEN {WEIGHT} > 0 THEN {half} ELSE -{half} END){_filter_clause(call)}", "sum", "bigint"
        )
        for part, half in parts.items()
    )
    return sums, f"(CAST({name}_upper AS decimal(20,0)) * 4294967296 + {name}_lower)"


def _value_count(call: Call, name: str, argument: str, retracts: bool) -> Accumulator:
    """How many values there are: the sum and the average of no values are null."""
    count_sum = _counting_sum(f"({argument}) IS NOT NULL", call.filter, retracts)
    return _accumulator(f"{name}_count", count_sum, "sum", "bigint")


def _counting_sum(condition: str, filter_: str | None, retracts: bool) -> str:
    whole = condition if filter_ is None else f"({condition}) AND ({filter_})"
    return f"coalesce(sum(CASE WHEN {whole} THEN {WEIGHT if retracts else '1L'} END), 0L)"


def _filter_clause(call: Call) -> str:
    return "" if call.filter is None else f" FILTER (WHERE {call.filter})"


def _type(rows: DataFrame, expression: str, *, aggregate: bool = False) -> DataType:
    evaluated = rows.groupBy().agg(F.expr(expression)) if aggregate else rows.select(F.expr(expression))
    return evaluated.schema[0].dataType
