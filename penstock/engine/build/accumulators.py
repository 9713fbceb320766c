"""Which aggregates add up, and how: what Spark sums up in an epoch, how epochs are put together, how a value is made.

An aggregate that is not here, or not for this input, is evaluated by Spark over all rows of the groups that changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType

from penstock.engine.build.graph import has_map
from penstock.engine.build.hyperloglog import bits_of, estimate, rank_of, register_of
from penstock.engine.build.sketches import gathering, joining
from penstock.engine.operators.contract import WEIGHT
from penstock.engine.state.columns import COUNT
from penstock.engine.state.combine import Rule
from penstock.flow.expressions import Call

_ORDERED = (T.NumericType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
_EXTREMES: dict[str, Rule] = {"min": "min", "max": "max"}
_FRACTIONS = (T.FloatType, T.DoubleType)
_NARROW = (T.ByteType, T.ShortType, T.IntegerType)
_BITMAPS: dict[str, Rule] = {"bitmap_and_agg": "and", "bitmap_construct_agg": "or", "bitmap_or_agg": "or"}
# With so many digits more than the result has, a quotient that is rounded twice is next to never off by one.
_SPARE_DIGITS = 12
_DEVIATION = "0.05"  # what `approx_count_distinct` allows where nothing is said


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A column of the state: what it is over the rows of one epoch (`None`: it comes from elsewhere), and its rule.

    Parts of an epoch are put together by `gather`. Where the rule is no more than that the newest counts, `join` puts
    what is stored into it before.
    """

    name: str
    aggregate: str | None
    rule: Rule
    type: str
    gather: str
    join: str | None = None


@dataclass(frozen=True, slots=True)
class Accumulated:
    """A call as accumulators and the value they make.

    `distinct` are the expressions whose different values count; with a `rank`, of each of them the greatest one does.
    """

    value: str
    accumulators: tuple[Accumulator, ...] = ()
    distinct: tuple[str, ...] = ()
    rank: str | None = None
    filter: str | None = None


def accumulated(call: Call, name: str, rows: DataFrame, *, sessions: bool) -> Accumulated | None:
    """How a call adds up over these rows; None where it does not."""
    if call.clause is not None:
        return None
    retracts = WEIGHT in rows.columns
    if call.distinct:
        return None if sessions else _count_distinct(call, name)
    if call.function == "approx_count_distinct":
        return None if sessions or retracts else _approximate_count(call, name, rows)
    if call.function in ("count", "count_if"):
        return _count(call, name, retracts)
    if call.function in _BITMAPS:
        return None if retracts else Accumulated(name, (_bitmap(call, name),))
    if (gather := gathering(call, name)) is not None:
        return None if sessions or retracts else Accumulated(name, (_sketch(call, name, gather),))
    if len(call.arguments) != 1:
        return None
    type_ = _type(rows, call.arguments[0])
    if call.function == "sum" and isinstance(type_, T.NumericType):
        return _sum(call, name, rows, retracts)
    if call.function in ("avg", "mean") and isinstance(type_, T.NumericType):
        return _average(call, name, rows, retracts)
    if call.function in _EXTREMES and isinstance(type_, _ORDERED) and not retracts:
        return Accumulated(name, (_plain(name, call.text, _EXTREMES[call.function], type_.simpleString()),))
    return None


def _plain(name: str, aggregate: str | None, rule: Rule, type_: str) -> Accumulator:
    return Accumulator(name, aggregate, rule, type_, gather=f"{rule}({name})")


def _count_distinct(call: Call, name: str) -> Accumulated | None:
    """The number of different values, which are kept as hashes."""
    if call.function != "count":
        return None
    counter = _plain(name, None, "sum", "bigint")
    return Accumulated(f"coalesce({name}, 0L)", (counter,), call.arguments, filter=call.filter)


def _approximate_count(call: Call, name: str, rows: DataFrame) -> Accumulated | None:
    value, *more = call.arguments
    bits = bits_of(more[0] if more else _DEVIATION)
    if bits is None or has_map(_type(rows, value)):
        return None
    said, used = _plain(name, None, "sum", "double"), _plain(f"{name}_used", None, "sum", "bigint")
    return Accumulated(
        estimate(bits, said.name, used.name),
        (said, used),
        distinct=(register_of(value, bits),),
        rank=rank_of(value, bits),
        filter=call.filter,
    )


def _bitmap(call: Call, name: str) -> Accumulator:
    rule = _BITMAPS[call.function]
    return Accumulator(name, call.text, rule, "binary", gather=f"bitmap_{rule}_agg({name})")


def _sketch(call: Call, name: str, gather: str) -> Accumulator:
    return Accumulator(name, call.text, "same", "binary", gather, joining(call, name))


def _count(call: Call, name: str, retracts: bool) -> Accumulated:
    if call.function == "count" and call.filter is None and call.arguments == ("1",):
        return Accumulated(COUNT)
    if call.function == "count_if":
        counted = f"({call.arguments[0]})"
    else:
        counted = " AND ".join(f"({one}) IS NOT NULL" for one in call.arguments)
    return Accumulated(name, (_plain(name, _counting(counted, call.filter, retracts), "sum", "bigint"),))


def _sum(call: Call, name: str, rows: DataFrame, retracts: bool) -> Accumulated | None:
    (argument,) = call.arguments
    sums, total = _total(call, name, rows, argument, retracts)
    if not retracts:
        return Accumulated(total, sums)
    if isinstance(_type(rows, argument), _FRACTIONS):
        return None  # taking 1e20 away again leaves the rounding it caused, and NaN does not go at all
    number, result = _number(call, name, argument, retracts), _type(rows, f"sum({argument})", aggregate=True)
    return Accumulated(
        f"CASE WHEN {number.name} <> 0 THEN CAST({total} AS {result.simpleString()}) END", (*sums, number)
    )


def _average(call: Call, name: str, rows: DataFrame, retracts: bool) -> Accumulated | None:
    (argument,) = call.arguments
    type_, result = _type(rows, argument), _type(rows, f"avg({argument})", aggregate=True)
    if isinstance(type_, T.DecimalType):
        quotient = _type(rows, f"sum({argument}) / count(1)", aggregate=True)
        if not _holds(quotient, result):
            return None
    elif isinstance(type_, _FRACTIONS) and retracts:
        return None
    elif not retracts:
        argument = f"CAST({argument} AS double)"
    sums, total = _total(call, name, rows, argument, retracts)
    number = _number(call, name, argument, retracts)
    dividend = total if isinstance(type_, T.DecimalType) else f"CAST({total} AS double)"
    value = f"CASE WHEN {number.name} <> 0 THEN CAST({dividend} / {number.name} AS {result.simpleString()}) END"
    return Accumulated(value, (*sums, number))


def _holds(quotient: DataType, result: DataType) -> bool:
    """Whether a quotient has so many more digits than its result that it may be rounded twice."""
    assert isinstance(quotient, T.DecimalType) and isinstance(result, T.DecimalType)
    return quotient.scale >= result.scale + _SPARE_DIGITS


def _total(
    call: Call, name: str, rows: DataFrame, argument: str, retracts: bool
) -> tuple[tuple[Accumulator, ...], str]:
    """What is summed up, and the sum it makes."""
    type_ = _type(rows, argument)
    if retracts and isinstance(type_, T.LongType):
        return _in_halves(call, name, argument)
    signed = argument
    if retracts:
        # The least number of a narrow type has no opposite in it.
        wide = f"CAST({argument} AS bigint)" if isinstance(type_, _NARROW) else f"({argument})"
        signed = f"CASE WHEN {WEIGHT} > 0 THEN {wide} ELSE -{wide} END"
    result = _type(rows, f"sum({argument})", aggregate=True).simpleString()
    return (_plain(name, f"sum({signed}){_only(call)}", "sum", result),), name


def _in_halves(call: Call, name: str, argument: str) -> tuple[tuple[Accumulator, ...], str]:
    """The upper and the lower halves of long numbers, summed up apart, and what they make together, as a decimal.

    What an epoch adds or takes back may be more than a long number holds, though the sums before and after it are not.
    """
    upper, lower = f"shiftright({argument}, 32)", f"(({argument}) & 4294967295L)"
    parts = {f"{name}_upper": upper, f"{name}_lower": lower}
    sums = tuple(
        _plain(part, f"sum(CASE WHEN {WEIGHT} > 0 THEN {half} ELSE -{half} END){_only(call)}", "sum", "bigint")
        for part, half in parts.items()
    )
    return sums, f"(CAST({name}_upper AS decimal(20,0)) * 4294967296 + {name}_lower)"


def _number(call: Call, name: str, argument: str, retracts: bool) -> Accumulator:
    """How many values there are: the sum of none is null, and so is their average."""
    counting = _counting(f"({argument}) IS NOT NULL", call.filter, retracts)
    return _plain(f"{name}_count", counting, "sum", "bigint")


def _counting(condition: str, filter_: str | None, retracts: bool) -> str:
    whole = condition if filter_ is None else f"({condition}) AND ({filter_})"
    return f"coalesce(sum(CASE WHEN {whole} THEN {WEIGHT if retracts else '1L'} END), 0L)"


def _only(call: Call) -> str:
    return "" if call.filter is None else f" FILTER (WHERE {call.filter})"


def _type(rows: DataFrame, expression: str, *, aggregate: bool = False) -> DataType:
    typed = rows.groupBy().agg(F.expr(expression)) if aggregate else rows.select(F.expr(expression))
    return typed.schema[0].dataType
