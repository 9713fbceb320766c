"""Aggregate calls over rows that occur once, with a multiplicity: how each call is written then.

A call that cannot be written like that needs repeated rows.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from penstock.engine.operators.group_rows import MULTIPLICITY
from penstock.flow.expressions import Call
from penstock.flow.reading import tokens_of

LIVE = f"{MULTIPLICITY} > 0"
# The filter of a call goes to its end, but before what says whether nulls count.
_NULLS = re.compile(r"\b(ignore|respect)\s+nulls\s*$", re.IGNORECASE)
# The result of these does not depend on how often a row occurs.
_SETS = "any approx_count_distinct bit_and bit_or bool_and bool_or collect_set every hll_sketch_agg max min some"
_ONCE_IS_ENOUGH = frozenset(_SETS.split())


def weighted_call(call: Call, rows: DataFrame) -> str | None:
    """The call over rows that occur `_times` times; None if it needs repeated rows."""
    if call.distinct or (call.function in _ONCE_IS_ENOUGH and call.clause is None):
        return restrict_to_live_rows(call)
    if call.clause is not None or not call.arguments:
        return None
    first, *more = call.arguments
    if call.function == "count":
        not_null = " AND ".join(f"({argument}) IS NOT NULL" for argument in call.arguments)
        return f"coalesce(sum(CASE WHEN {not_null} THEN {MULTIPLICITY} END){_live_filter(call)}, 0L)"
    if call.function == "percentile":
        frequency = f"({more[1]}) * {MULTIPLICITY}" if len(more) > 1 else MULTIPLICITY
        return f"percentile({first}, {more[0]}, {frequency}){_live_filter(call)}" if more else None
    if call.function == "median":
        return (
            f"percentile({first}, 0.5D, {MULTIPLICITY}){_live_filter(call)}"
            if _has_type(rows, first, T.NumericType)
            else None
        )
    if call.function == "sum" and _has_type(rows, first, T.IntegralType):
        return f"sum(CAST({first} AS bigint) * {MULTIPLICITY}){_live_filter(call)}"
    return None


def restrict_to_live_rows(call: Call) -> str:
    """The call without rows that only say that their group was touched."""
    if call.filter is not None:
        start = _filter_start(call.text)
        return call.text[:start] + call.text[start:].replace(call.filter, f"({call.filter}) AND {LIVE}", 1)
    nulls = _NULLS.search(call.text)
    end = nulls.start() if nulls else len(call.text)
    return f"{call.text[:end]} FILTER (WHERE {LIVE}) {call.text[end:]}"


def _filter_start(text: str) -> int:
    """The position in a call at which the condition of its filter begins."""
    tokens = tokens_of(text)
    words = [token.word for token in tokens]
    return [tokens[at].end for at in range(2, len(words)) if words[at - 2 : at + 1] == ["filter", "(", "where"]][-1]


def _live_filter(call: Call) -> str:
    condition = LIVE if call.filter is None else f"({call.filter}) AND {LIVE}"
    return f" FILTER (WHERE {condition})"


def _has_type(rows: DataFrame, expression: str, type_: type[T.DataType]) -> bool:
    return isinstance(rows.select(F.expr(expression)).schema[0].dataType, type_)
