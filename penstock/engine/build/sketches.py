"""Sketches that Spark can merge: the state holds the sketch of each group, and Spark joins an epoch's sketch with it.

Before the groups of an epoch reach the operator that keeps them, a step that only reads adds the stored sketch to each
group, and Spark makes one sketch of the two. The operator then stores the complete sketch, and the newest one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import STATE_PARTITION, arrow_schema, map_in_arrow, quote, without_fields
from penstock.engine.datasource.topic import plain_errors
from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import hashes_of
from penstock.engine.operators.windows import group_order
from penstock.engine.run.tasks import MapInArrow, OpenState, collect_batches, split_batch
from penstock.flow.expressions import Call
from penstock.storage.files import disk_errors

STORED = "_stored"


@dataclass(frozen=True, slots=True)
class SketchUnion:
    """`gather` makes one sketch of many, `join` one of two. Both take the arguments of the call from `more` on."""

    gather: str
    join: str
    more: int | None = None


_HLL = ("hll_union_agg", "hll_union")
_THETA = SketchUnion("theta_union_agg", "theta_union", 1)
_KLL = {
    kind: SketchUnion(f"kll_merge_agg_{kind}", f"kll_sketch_merge_{kind}") for kind in ("bigint", "double", "float")
}
_TUPLE = {kind: (f"tuple_union_agg_{kind}", f"tuple_union_{kind}") for kind in ("double", "integer")}
UNIONS = {
    "hll_sketch_agg": SketchUnion(*_HLL),
    "hll_union_agg": SketchUnion(*_HLL, 1),
    "theta_sketch_agg": _THETA,
    "theta_union_agg": _THETA,
    **{f"kll_sketch_agg_{kind}": union for kind, union in _KLL.items()},
    **{f"kll_merge_agg_{kind}": union for kind, union in _KLL.items()},
    **{f"tuple_sketch_agg_{kind}": SketchUnion(*names, 2) for kind, names in _TUPLE.items()},
    **{f"tuple_union_agg_{kind}": SketchUnion(*names, 1) for kind, names in _TUPLE.items()},
}


def gather_sql(call: Call, name: str) -> str | None:
    """The SQL aggregate that merges the sketches of a call in column `name`; None if Spark has none."""
    union = UNIONS.get(call.function)
    return None if union is None else f"{union.gather}({', '.join([name, *_settings(union, call)])})"


def join_sql(call: Call, name: str) -> str:
    """The SQL that joins an epoch's sketch with the stored one."""
    union, stored_name = UNIONS[call.function], STORED + name
    union_sql = f"{union.join}({', '.join([stored_name, name, *_settings(union, call)])})"
    return f"CASE WHEN {stored_name} IS NULL THEN {name} ELSE {union_sql} END"


def _settings(union: SketchUnion, call: Call) -> tuple[str, ...]:
    return () if union.more is None else call.arguments[union.more :]


def join_stored_sketches(groups: DataFrame, operator: Accumulate, joins: dict[str, str]) -> DataFrame:
    """The groups of an epoch, their sketches joined with those of the state."""
    if not joins:
        return groups
    schema = arrow_schema(groups.schema)
    output = pa.schema([*schema, *(pa.field(STORED + name, pa.binary()) for name in joins)])
    with_stored_sketches = map_in_arrow(groups, _look_up_sketches(operator, schema, tuple(joins)), output)
    return with_stored_sketches.select(
        *(F.expr(joins[name]).alias(name) if name in joins else F.col(quote(name)) for name in groups.columns)
    )


def _look_up_sketches(operator: Accumulate, schema: pa.Schema, sketches: tuple[str, ...]) -> MapInArrow:
    """A function for `mapInArrow` that adds to each group its sketches in the state."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"state {operator.state}"):
            changes = collect_batches(batches, schema)
            # The operator may run in another process, and has the files open under its own name.
            arrangement = OpenState(operator, without_fields(schema, STATE_PARTITION), reader="sketches").arrangement
            order, (_, second) = group_order(operator.window, changes), hashes_of(changes)
            old, has_old = arrangement.look_up(order, second)
            at = pa.array(np.cumsum(has_old) - 1, mask=~has_old)
            columns = [*changes.columns, *(old.column(name).take(at) for name in sketches)]
            names = [*schema.names, *(STORED + name for name in sketches)]
            yield from split_batch(pa.RecordBatch.from_arrays(columns, names=names))

    return run
