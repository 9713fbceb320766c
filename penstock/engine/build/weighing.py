"""Calls over rows that stand once, with how often they are there: what each means then.

Where a call has no such meaning, its rows have to be repeated.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from penstock.engine.operators.group_rows import TIMES
from penstock.flow.expressions import Call
from penstock.flow.reading import tokens_of

LIVE = f"{TIMES} > 0"
# Where a condition of a call can be put: at the end, but before what says whether nulls count.
_NULLS = re.compile(r"\b(ignore|respect)\s+nulls\s*$", re.IGNORECASE)
# To these a row says the same however often it is there.
_SETS = "any approx_count_distinct bit_and bit_or bool_and bool_or collect_set every hll_sketch_agg max min some"
_ONCE_IS_ENOUGH = frozenset(_SETS.split())


def weighed(call: Call, rows: DataFrame) -> str | None:
    """The call over rows that are there `_times` often; None where only repeated rows will do."""
    if call.distinct or (call.function in _ONCE_IS_ENOUGH and call.clause is None):
        return over_live_rows(call)
    if call.clause is not None or not call.arguments:
        return None
    first, *more = call.arguments
    if call.function == "count":
        there = " AND ".join(f"({one}) IS NOT NULL" for one in call.arguments)
        return f"coalesce(sum(CASE WHEN {there} THEN {TIMES} END){_only(call)}, 0L)"
    if call.function == "percentile":
        frequency = f"({more[1]}) * {TIMES}" if len(more) > 1 else TIMES
        return f"percentile({first}, {more[0]}, {frequency}){_only(call)}" if more else None
    if call.function == "median":
        return f"percentile({first}, 0.5D, {TIMES}){_only(call)}" if _is(rows, first, T.NumericType) else None
    if call.function == "sum" and _is(rows, first, T.IntegralType):
        return f"sum(CAST({first} AS bigint) * {TIMES}){_only(call)}"
    return None


def over_live_rows(call: Call) -> str:
    """The call over rows that are there, and not over those that only say that their group was touched."""
    if call.filter is not None:
        at = _where(call.text)
        return call.text[:at] + call.text[at:].replace(call.filter, f"({call.filter}) AND {LIVE}", 1)
    nulls = _NULLS.search(call.text)
    end = nulls.start() if nulls else len(call.text)
    return f"{call.text[:end]} FILTER (WHERE {LIVE}) {call.text[end:]}"


def _where(text: str) -> int:
    """Where in a call the condition of its filter begins."""
    tokens = tokens_of(text)
    words = [token.word for token in tokens]
    return [tokens[at].end for at in range(2, len(words)) if words[at - 2 : at + 1] == ["filter", "(", "where"]][-1]


def _only(call: Call) -> str:
    condition = LIVE if call.filter is None else f"({call.filter}) AND {LIVE}"
    return f" FILTER (WHERE {condition})"


def _is(rows: DataFrame, expression: str, type_: type[T.DataType]) -> bool:
    return isinstance(rows.select(F.expr(expression)).schema[0].dataType, type_)
