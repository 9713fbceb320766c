"""Sketches that Spark can put together: the state keeps the sketch of each group, and Spark joins it with an epoch's.

Before the rows of an epoch reach the operator that keeps the groups, they pass a step that only looks: it gives each
group the sketch that the state has of it, and Spark makes one of the two. What the operator stores is then the whole
sketch, and the newest is the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import SHARE, arrow_schema, in_arrow, quoted, without
from penstock.engine.datasource.topic import plain_errors
from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import hashes_of
from penstock.engine.operators.windows import group_order
from penstock.engine.run.tasks import InArrow, OpenState, collected, pieces
from penstock.flow.expressions import Call
from penstock.log.files import disk_errors

STORED = "_stored"


@dataclass(frozen=True, slots=True)
class Union:
    """`gather` makes one sketch of many, `join` one of two; both take what the call says from argument `more` on."""

    gather: str
    join: str
    more: int | None = None


_HLL = ("hll_union_agg", "hll_union")
_THETA = Union("theta_union_agg", "theta_union", 1)
_KLL = {one: Union(f"kll_merge_agg_{one}", f"kll_sketch_merge_{one}") for one in ("bigint", "double", "float")}
_TUPLE = {one: (f"tuple_union_agg_{one}", f"tuple_union_{one}") for one in ("double", "integer")}
UNIONS = {
    "hll_sketch_agg": Union(*_HLL),
    "hll_union_agg": Union(*_HLL, 1),
    "theta_sketch_agg": _THETA,
    "theta_union_agg": _THETA,
    **{f"kll_sketch_agg_{one}": union for one, union in _KLL.items()},
    **{f"kll_merge_agg_{one}": union for one, union in _KLL.items()},
    **{f"tuple_sketch_agg_{one}": Union(*names, 2) for one, names in _TUPLE.items()},
    **{f"tuple_union_agg_{one}": Union(*names, 1) for one, names in _TUPLE.items()},
}


def gathering(call: Call, name: str) -> str | None:
    """The aggregate, as SQL, that makes one of the sketches of a call in column `name`; None: Spark has none."""
    union = UNIONS.get(call.function)
    return None if union is None else f"{union.gather}({', '.join([name, *_settings(union, call)])})"


def joining(call: Call, name: str) -> str:
    """One of an epoch's sketch and the stored one, as SQL."""
    union, stored = UNIONS[call.function], STORED + name
    both = f"{union.join}({', '.join([stored, name, *_settings(union, call)])})"
    return f"CASE WHEN {stored} IS NULL THEN {name} ELSE {both} END"


def _settings(union: Union, call: Call) -> tuple[str, ...]:
    return () if union.more is None else call.arguments[union.more :]


def with_stored(groups: DataFrame, operator: Accumulate, joins: dict[str, str]) -> DataFrame:
    """What an epoch brings to groups, with the sketches that the state has of them put into theirs."""
    if not joins:
        return groups
    given = arrow_schema(groups.schema)
    output = pa.schema([*given, *(pa.field(STORED + name, pa.binary()) for name in joins)])
    found = in_arrow(groups, _looking(operator, given, tuple(joins)), output)
    return found.select(
        *(F.expr(joins[name]).alias(name) if name in joins else F.col(quoted(name)) for name in groups.columns)
    )


def _looking(operator: Accumulate, given: pa.Schema, sketches: tuple[str, ...]) -> InArrow:
    """The groups as they come, each with the sketches it has in the state; they stay where they are."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"state {operator.state}"):
            changes = collected(batches, given)
            # The operator, which may run in another process, has the files open under a name of its own.
            arrangement = OpenState(operator, without(given, SHARE), reader="sketches").arrangement
            order, (_, second) = group_order(operator.window, changes), hashes_of(changes)
            old, there = arrangement.look_up(order, second)
            at = pa.array(np.cumsum(there) - 1, mask=~there)
            columns = [*changes.columns, *(old.column(name).take(at) for name in sketches)]
            names = [*given.names, *(STORED + name for name in sketches)]
            yield from pieces(pa.RecordBatch.from_arrays(columns, names=names))

    return run
