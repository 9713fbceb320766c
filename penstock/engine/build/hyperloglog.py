"""`approx_count_distinct`, as Spark estimates it: from the greatest rank that the hashes of each register have.

Ranks only rise while rows are only added, and Spark's estimate follows from two sums over the registers: how many have
a rank, and what these say together. So it is a matter of sums here, and gives Spark's own answer to the last digit.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

from pyspark import SparkContext

# As in Spark's HyperLogLogPlusPlusHelper: fewer registers than 2**4 are refused, and above 2**18 no biases are known.
_LEAST, _MOST = 4, 18
_ALPHA = {4: 0.673, 5: 0.697, 6: 0.709}
_NEIGHBOURS = 6  # from how many known biases one is estimated


def bits_of(deviation: str) -> int | None:
    """The bits that choose a register, by the relative deviation that is asked for; None: Spark decides by itself."""
    try:
        bits = math.ceil(2 * math.log(1.106 / float(deviation)) / math.log(2))
    except (ValueError, ZeroDivisionError):
        return None
    return bits if _LEAST <= bits <= _MOST else None


def register_of(value: str, bits: int) -> str:
    """The register of a value, as SQL; null for null, which does not count."""
    return f"CASE WHEN ({value}) IS NOT NULL THEN shiftrightunsigned(xxhash64({value}), {64 - bits}) END"


def rank_of(value: str, bits: int) -> str:
    """The number of zeros that the rest of the hash begins with, and one more, as SQL."""
    return f"65 - length(bin(shiftleft(xxhash64({value}), {bits}) | {1 << (bits - 1)}L))"


def estimate(bits: int, said: str, used: str) -> str:
    """The number of different values, as SQL: `used` registers have a rank, and their 2**-rank are `said` in all."""
    threshold, bounds, biases = _known(bits)
    registers = 1 << bits
    alpha = _ALPHA.get(bits, 0.7213 / (1 + 1.079 / registers)) * registers * registers
    empty = f"({registers} - coalesce({used}, 0L))"
    raw = f"({_number(alpha)} / ({empty} + coalesce({said}, 0D)))"
    place = f"size(filter({_numbers(bounds)}, one -> one <= {raw}))"
    corrected = f"CASE WHEN {raw} < {5 * registers} THEN {raw} - {_numbers(biases)}[{place}] ELSE {raw} END"
    linear = f"({registers} * ln(CASE WHEN {empty} > 0 THEN {registers}D / {empty} END))"
    # Where registers are empty, and few rows came, their number tells more than what the others say.
    few = f"{linear} <= {_number(threshold)} OR ({empty} > 0 AND {raw} <= {2.5 * registers}D)"
    found = f"CASE WHEN {few} THEN {linear} ELSE {corrected} END"
    return f"CAST(floor({found} + 0.5D) AS bigint)"


@lru_cache
def _known(bits: int) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """The estimate up to which empty registers tell more; where the bias changes; and the biases in between."""
    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None
    # A hair more than the deviation of so many bits, lest rounding asks for one bit more.
    deviation = 1.106 / 2 ** (bits / 2) * (1 + 1e-9)
    helper = context._jvm.org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper(deviation)
    raw = list(helper.RAW_ESTIMATE_DATA()[bits - _LEAST])
    # The bias is the mean of those of the nearest known estimates: it changes only where the nearest ones do.
    changes = sorted({*raw, *((one + other) / 2 for one, other in zip(raw, raw[_NEIGHBOURS:], strict=False))})
    inside = [changes[0] - 1, *((one + other) / 2 for one, other in pairwise(changes)), changes[-1] + 1]
    biases = [helper.estimateBias(one) for one in inside]
    kept = [at for at in range(len(changes)) if biases[at] != biases[at + 1]]
    threshold = helper.THRESHOLDS()[bits - _LEAST]
    return threshold, tuple(changes[at] for at in kept), (biases[0], *(biases[at + 1] for at in kept))


def _numbers(some: tuple[float, ...]) -> str:
    return f"array({', '.join(map(_number, some))})"


def _number(value: float) -> str:
    return f"{value!r}D"
