"""`approx_count_distinct` as Spark computes it, by HyperLogLog: from the greatest rank of the hashes in each register.

Ranks only rise while rows are only added. Spark's estimate follows from two sums over the registers: how many have a
rank, and the sum of their 2**-rank. So it adds up, and is equal to Spark's own answer to the last digit.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

from pyspark import SparkContext

# As in Spark's HyperLogLogPlusPlusHelper: fewer registers than 2**4 are refused, and above 2**18 no biases are known.
_LEAST, _MOST = 4, 18
_ALPHA = {4: 0.673, 5: 0.697, 6: 0.709}
_NEIGHBOURS = 6  # how many known biases an estimate uses


def bits_of(deviation: str) -> int | None:
    """How many bits choose the register, for a relative deviation; None: left to Spark."""
    try:
        bits = math.ceil(2 * math.log(1.106 / float(deviation)) / math.log(2))
    except (ValueError, ZeroDivisionError):
        return None
    return bits if _LEAST <= bits <= _MOST else None


def register_of(value: str, bits: int) -> str:
    """The register of a value, as SQL; null for null, which does not count."""
    return f"CASE WHEN ({value}) IS NOT NULL THEN shiftrightunsigned(xxhash64({value}), {64 - bits}) END"


def rank_of(value: str, bits: int) -> str:
    """The number of leading zeros in the rest of the hash, plus one, as SQL."""
    return f"65 - length(bin(shiftleft(xxhash64({value}), {bits}) | {1 << (bits - 1)}L))"


def estimate(bits: int, rank_sum: str, used_registers: str) -> str:
    """The number of different values, as SQL.

    `used_registers` is the number of registers with a rank, `rank_sum` the sum of their 2**-rank.
    """
    threshold, bounds, biases = _estimation_tables(bits)
    registers = 1 << bits
    alpha = _ALPHA.get(bits, 0.7213 / (1 + 1.079 / registers)) * registers * registers
    empty = f"({registers} - coalesce({used_registers}, 0L))"
    raw = f"({_sql_double(alpha)} / ({empty} + coalesce({rank_sum}, 0D)))"
    bias = f"{_sql_array(biases)}[size(filter({_sql_array(bounds)}, bound -> bound <= {raw}))]"
    corrected_value = f"CASE WHEN {raw} < {5 * registers} THEN {raw} - {bias} ELSE {raw} END"
    linear = f"({registers} * ln(CASE WHEN {empty} > 0 THEN {registers}D / {empty} END))"
    # While many registers are empty, their number gives the better estimate.
    few = f"{linear} <= {_sql_double(threshold)} OR ({empty} > 0 AND {raw} <= {2.5 * registers}D)"
    value = f"CASE WHEN {few} THEN {linear} ELSE {corrected_value} END"
    return f"CAST(floor({value} + 0.5D) AS bigint)"


@lru_cache
def _estimation_tables(bits: int) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """The estimate up to which empty registers are better; the estimates at which the bias changes; and the biases."""
    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None
    # Slightly more than the deviation for these bits, so that rounding does not ask for another bit.
    deviation = 1.106 / 2 ** (bits / 2) * (1 + 1e-9)
    helper = context._jvm.org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper(deviation)
    raw = list(helper.RAW_ESTIMATE_DATA()[bits - _LEAST])
    # The bias is the mean of the biases of the nearest known estimates. It changes only where these do.
    changes = sorted({*raw, *((left + right) / 2 for left, right in zip(raw, raw[_NEIGHBOURS:], strict=False))})
    inside = [changes[0] - 1, *((left + right) / 2 for left, right in pairwise(changes)), changes[-1] + 1]
    biases = [helper.estimateBias(point) for point in inside]
    steps = [at for at in range(len(changes)) if biases[at] != biases[at + 1]]
    threshold = helper.THRESHOLDS()[bits - _LEAST]
    return threshold, tuple(changes[at] for at in steps), (biases[0], *(biases[at + 1] for at in steps))


def _sql_array(values: tuple[float, ...]) -> str:
    return f"array({', '.join(map(_sql_double, values))})"


def _sql_double(value: float) -> str:
    return f"{value!r}D"
