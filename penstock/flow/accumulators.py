"""Which aggregates add up: their results follow from accumulators that epochs add to, without the rows themselves.

All others are evaluated again over all rows of the groups that changed.
"""

from __future__ import annotations

from penstock.flow.expressions import Call

# These add up in both directions: a row can be added and taken back.
_SUMS = frozenset({"avg", "count", "count_if", "mean", "sum"})
# These add up as long as no row is taken back.
_GROWING = frozenset({"bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "max", "min"})
_FAMILIES = {
    "hll": ("sketch_agg", "union_agg"),
    "theta": ("sketch_agg", "union_agg"),
    "kll": tuple(f"{verb}_agg_{type_}" for verb in ("merge", "sketch") for type_ in ("bigint", "double", "float")),
    "tuple": tuple(f"{verb}_agg_{type_}" for verb in ("sketch", "union") for type_ in ("double", "integer")),
}
SKETCHES = frozenset(
    {"approx_count_distinct"} | {f"{family}_{name}" for family, names in _FAMILIES.items() for name in names}
)
"""Sketches of which Spark can merge two. Like `max`, they only grow."""


def adds_up(call: Call, *, retracts: bool, sessions: bool) -> bool:
    """Whether a call can be kept as accumulators, as far as its function decides it.

    The types of its arguments can still rule it out: whoever builds it knows them. `retracts` says that rows may be
    taken back. A session is different: it can merge any number of others, which sketches and sets of values cannot do.
    """
    if call.clause is not None or (sessions and retracts):
        return False
    if call.distinct:
        return call.function == "count" and not sessions
    if call.function in _SUMS:
        return True
    if call.function in _GROWING:
        return not retracts
    return call.function in SKETCHES and not retracts and not sessions
