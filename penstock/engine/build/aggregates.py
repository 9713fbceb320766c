"""Aggregates in groups and windows, in four ways.

- *accumulated*: Spark sums an epoch up, the operator adds it to what it has. For aggregates that add up.
- *regrouped*: the rows of groups are kept, and Spark evaluates any aggregate over all rows of the groups that changed.
- *sessions* whose aggregates add up, put together from pieces shorter than the gap.
- *framed*: like regrouped, for sliding windows and for other sessions, whose bounds depend on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.accumulators import Accumulated, accumulated
from penstock.engine.build.graph import Graph, arrow_schema, hashed, quoted, row_hash, weight_of
from penstock.engine.build.windows import moment, order_of, pane_of, starts_of, universal
from penstock.engine.operators.accumulate import EVENTS, REVISION, Accumulate
from penstock.engine.operators.contract import HASH, SECOND_HASH, WEIGHT
from penstock.engine.operators.frames import Frames
from penstock.engine.operators.newest import MOMENT
from penstock.engine.operators.regroup import ROW_HASH, TIMES, Regroup
from penstock.engine.operators.replace import Replace
from penstock.engine.operators.session import LAST, Sessions
from penstock.engine.operators.weigh import DELTA, Weigh
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.engine.state.arrangement import WEIGHT as COUNT
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, columns_of, split_aggregates

_LOCAL = "_local"
_LONG = pa.int64()


@dataclass(frozen=True, slots=True)
class _Job:
    """An aggregate node with its expressions taken apart: keys are `_k0`, `_k1`, ... and calls `_a0`, `_a1`, ..."""

    graph: Graph
    node: flow.Aggregate
    keys: tuple[str, ...]
    outers: tuple[str, ...]
    calls: dict[str, Call]

    @property
    def windowing(self) -> flow.Windowing | None:
        return self.node.windowing

    @property
    def final(self) -> bool:
        return self.windowing is not None and self.windowing.emit == "final"

    @property
    def upserts(self) -> bool:
        return self.node in self.graph.upserted

    @property
    def fixed(self) -> flow.Tumbling | flow.Hopping | None:
        """The window, where its bounds do not depend on the rows."""
        window = self.windowing.window if self.windowing else None
        return window if isinstance(window, flow.Tumbling | flow.Hopping) else None

    @property
    def order(self) -> WindowOrder | None:
        return order_of(self.windowing) if self.windowing and self.fixed else None

    def key_columns(self) -> list[Column]:
        if not self.node.keys:
            return [F.lit(0).alias(self.keys[0])]
        return [F.expr(key.expression).alias(name) for key, name in zip(self.node.keys, self.keys, strict=True)]

    def moment(self) -> Column:
        return moment(self.node.input.shape)

    def state(self, role: str) -> str:
        return self.graph.state_name(self.node, role)


def aggregate(graph: Graph, rows: DataFrame, node: flow.Aggregate) -> DataFrame:
    """The changes of the groups' answers."""
    job = _taken_apart(graph, node)
    window = node.windowing.window if node.windowing else None
    if isinstance(window, flow.Sliding):
        return _named(job, _framed(job, rows, "sliding", window.size), {})
    sessions = isinstance(window, flow.Session)
    adding = {name: accumulated(call, name, rows, sessions=sessions) for name, call in job.calls.items()}
    adds_up = {name: one for name, one in adding.items() if one is not None}
    if len(adds_up) < len(adding) or (sessions and WEIGHT in rows.columns):
        if isinstance(window, flow.Session):
            return _named(job, _framed(job, rows, "session", window.gap), {})
        return _named(job, _regrouped(job, rows), {})
    values = {name: one.value for name, one in adds_up.items()}
    if isinstance(window, flow.Session):
        return _named(job, _sessions(job, rows, adds_up, window.gap), values)
    return _named(job, _accumulated(job, rows, adds_up), values)


def _taken_apart(graph: Graph, node: flow.Aggregate) -> _Job:
    calls: dict[Call, str] = {}
    outers = []
    for one in node.aggregates:
        split = split_aggregates(one.expression)
        outer = split.outer
        # Calls are numbered through the whole node; equal ones are evaluated once.
        names = {f"_a{number}": calls.setdefault(call, f"_a{len(calls)}") for number, call in enumerate(split.calls)}
        outers.append(_renamed(outer, names))
    # Without keys all rows are one group, which has a key of its own: Spark treats groups without any differently.
    keys = tuple(f"_k{number}" for number in range(len(node.keys) or 1))
    return _Job(graph, node, keys, tuple(outers), {name: call for call, name in calls.items()})


def _renamed(outer: str, names: dict[str, str]) -> str:
    from penstock.flow.sql import tokens_of

    text, at = "", 0
    for token in tokens_of(outer):
        text += outer[at : token.start] + names.get(token.raw, token.raw)
        at = token.end
    return text + outer[at:]


# -- accumulated ------------------------------------------------------------------------------------------------------


def _accumulated(job: _Job, rows: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    parts = _spread(job, _summed(job, rows, calls))
    branches = [parts]
    branches += [_distinct(job, rows, name, one, parts) for name, one in calls.items() if one.distinct]
    if len(branches) > 1 or isinstance(job.fixed, flow.Hopping):
        parts = _added_up(job, reduce(DataFrame.unionAll, branches), calls)
    groups = hashed(parts, [*job.keys, *([START] if job.fixed else [])])
    operator = Accumulate(
        state=job.state("groups"),
        rules={one.name: one.rule for call in calls.values() for one in call.accumulators},
        window=job.order,
        final=job.final,
        upserts=job.upserts,
    )
    return job.graph.operated(groups, operator, job.node, _answers(groups, {REVISION: _LONG, WEIGHT: _LONG}))


def _summed(job: _Job, rows: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """An epoch's part of each group, by the pane of time where there are windows."""
    by = job.key_columns()
    if job.fixed:
        by.append(pane_of(job.fixed, job.moment()).alias(_LOCAL))
    accumulators = [one for call in calls.values() for one in call.accumulators]
    columns = [
        (F.lit(None) if one.aggregate is None else F.expr(one.aggregate)).cast(one.type).alias(one.name)
        for one in accumulators
    ]
    return rows.groupBy(*by).agg(*columns, F.sum(weight_of(rows)).alias(COUNT), F.count(F.lit(1)).alias(EVENTS))


def _spread(job: _Job, parts: DataFrame) -> DataFrame:
    """Panes as windows, with their bounds: each pane is in one tumbling window or in several hopping ones."""
    if not job.fixed:
        return parts
    if isinstance(job.fixed, flow.Hopping):
        parts = _hopped(job.fixed, parts)
    return _with_bounds(job.fixed, parts)


def _hopped(window: flow.Hopping, parts: DataFrame) -> DataFrame:
    own = [name for name in parts.columns if name not in (_LOCAL, EVENTS)]
    windows = parts.select(
        *own, EVENTS, F.posexplode(starts_of(window, F.col(_LOCAL))).alias("_number", _LOCAL)
    )
    # In the books an event counts once, in the last of its windows.
    once = F.when(F.col("_number") == 0, F.col(EVENTS)).otherwise(F.lit(0)).alias(EVENTS)
    return windows.select(*own, once, _LOCAL)


def _with_bounds(window: flow.Tumbling | flow.Hopping, parts: DataFrame) -> DataFrame:
    start = F.col(_LOCAL)
    own = [name for name in parts.columns if name != _LOCAL]
    return parts.select(
        *own,
        universal(start, window.zone).alias(START),
        universal(start + F.lit(window.size), window.zone).alias(END),
    )


def _added_up(job: _Job, parts: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """Parts of the same group that came from different branches, as one."""
    by = [*job.keys, *([START, END] if job.fixed else [])]
    columns = [
        getattr(F, one.rule)(one.name).cast(one.type).alias(one.name)
        for call in calls.values()
        for one in call.accumulators
    ]
    return parts.groupBy(*by).agg(*columns, F.sum(COUNT).alias(COUNT), F.sum(EVENTS).alias(EVENTS))


def _distinct(job: _Job, rows: DataFrame, name: str, call: Accumulated, like: DataFrame) -> DataFrame:
    """How the number of distinct values of each group changes, in the shape of `like`."""
    values = [f"_v{number}" for number in range(len(call.distinct))]
    chosen = rows.where(call.filter) if call.filter else rows
    by = job.key_columns()
    if job.fixed:
        by.append(pane_of(job.fixed, job.moment()).alias(_LOCAL))
    by += [F.expr(one).alias(value) for one, value in zip(call.distinct, values, strict=True)]
    weights = chosen.groupBy(*by).agg(F.sum(weight_of(rows)).alias(COUNT), F.lit(0).cast("long").alias(EVENTS))
    weights = weights.where(" AND ".join(f"{value} IS NOT NULL" for value in values))
    weights = _counted(job, _spread(job, weights))
    keyed = hashed(weights, [*job.keys, *([START] if job.fixed else []), *values])
    operator = Weigh(job.state(f"distinct{name}"), job.order)
    found = job.graph.operated(keyed, operator, job.node, _answers(keyed, {DELTA: _LONG}))
    zero = F.lit(0).cast("long")
    columns = {name: F.col(DELTA), COUNT: zero, EVENTS: zero}
    kept = {*job.keys, START, END}
    return found.select(
        *(
            F.col(one.name)
            if one.name in kept
            else columns.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name)
            for one in like.schema
        )
    )


# -- regrouped --------------------------------------------------------------------------------------------------------


def _regrouped(job: _Job, rows: DataFrame) -> DataFrame:
    base = _kept_rows(job, rows, pane=True)
    group = [*job.keys, *([START] if job.fixed else [])]
    whole = [name for name in base.columns if name not in (COUNT, EVENTS)]
    keyed = hashed(job.graph.brought_together(base, group), group, row_hash(whole).alias(ROW_HASH))
    operator = Regroup(job.state("rows"), job.order, final=job.final)
    schema = _answers(keyed, {TIMES: _LONG}, without=(COUNT, ROW_HASH))
    return _evaluated(job, job.graph.operated(keyed, operator, job.node, schema))


def _kept_rows(job: _Job, rows: DataFrame, *, pane: bool) -> DataFrame:
    """The columns that the calls need, each different row once, with how often it was added."""
    needed = sorted({name for call in job.calls.values() for name in columns_of(call.text)})
    known = {name.lower(): name for name in rows.columns}
    columns = [F.col(quoted(known.get(name.lower(), name))).alias(name) for name in needed]
    at = []
    if pane and job.fixed:
        at.append(pane_of(job.fixed, job.moment()).alias(_LOCAL))
    if not pane:
        at.append(job.moment().alias(MOMENT))
    chosen = rows.select(*job.key_columns(), *at, *columns, weight_of(rows).cast("long").alias(COUNT))
    by = [quoted(name) for name in chosen.columns if name != COUNT]
    weighed = chosen.groupBy(*by).agg(F.sum(COUNT).alias(COUNT), F.count(F.lit(1)).alias(EVENTS))
    return _counted(job, _spread(job, weighed)) if pane else weighed


def _counted(job: _Job, rows: DataFrame) -> DataFrame:
    """Equal rows as one; only hopping windows, made of several panes, can have brought such together."""
    if not isinstance(job.fixed, flow.Hopping):
        return rows
    same = [quoted(name) for name in rows.columns if name not in (COUNT, EVENTS)]
    return rows.groupBy(*same).agg(F.sum(COUNT).alias(COUNT), F.sum(EVENTS).alias(EVENTS))


def _evaluated(job: _Job, groups: DataFrame) -> DataFrame:
    """Any aggregate over rows that stand once with how often they are there, and the answers replaced by key."""
    bounds = [START, END] if job.windowing else []
    copies = F.explode(F.sequence(F.lit(1), F.greatest(F.col(TIMES), F.lit(1)).cast("int"))).alias("_copy")
    rows = groups.select("*", copies)
    one = F.when((F.col(TIMES) > 0), 1).otherwise(0)
    answers = rows.groupBy(*job.keys, *bounds).agg(
        *(F.expr(_over_live_rows(call)).alias(name) for name, call in job.calls.items()),
        F.sum(one).alias(COUNT),
    )
    keyed = hashed(answers, [*job.keys, *bounds])
    order = None
    if job.windowing is not None:
        order = WindowOrder(1, 0, job.windowing.keep)
    operator = Replace(job.state("answers"), order, upserts=job.upserts)
    return job.graph.operated(keyed, operator, job.node, _answers(keyed, {REVISION: _LONG, WEIGHT: _LONG}))


def _over_live_rows(call: Call) -> str:
    if call.filter is None:
        return f"{call.text} FILTER (WHERE {TIMES} > 0)"
    if call.clause is not None:
        raise DeclarationError(f"{call.text}: a filter together with '{call.clause}' is not possible here")
    arguments = ", ".join(call.arguments)
    distinct = "DISTINCT " if call.distinct else ""
    return f"{call.function}({distinct}{arguments}) FILTER (WHERE ({call.filter}) AND {TIMES} > 0)"


# -- windows that depend on the rows ----------------------------------------------------------------------------------


def _sessions(job: _Job, rows: DataFrame, calls: dict[str, Accumulated], gap: int) -> DataFrame:
    assert job.windowing is not None
    at = job.moment()
    accumulators = [one for call in calls.values() for one in call.accumulators]
    pieces = rows.groupBy(*job.key_columns(), F.floor(at / F.lit(gap)).alias("_piece")).agg(
        *(F.expr(one.aggregate).cast(one.type).alias(one.name) for one in accumulators if one.aggregate),
        F.min(at).alias(START),
        F.max(at).alias(LAST),
        F.count(F.lit(1)).alias(COUNT),
        F.count(F.lit(1)).alias(EVENTS),
    )
    together = job.graph.brought_together(pieces.drop("_piece"), list(job.keys))
    keyed = hashed(together, list(job.keys))
    operator = Sessions(
        state=job.state("sessions"),
        rules={one.name: one.rule for one in accumulators},
        gap=gap,
        keep_after=job.windowing.keep,
        final=job.final,
    )
    schema = _answers(keyed, {END: _LONG, REVISION: _LONG, WEIGHT: _LONG}, without=(LAST,))
    return job.graph.operated(keyed, operator, job.node, schema)


def _framed(job: _Job, rows: DataFrame, shape: str, length: int) -> DataFrame:
    assert job.windowing is not None and shape in ("sliding", "session")
    base = job.graph.brought_together(_kept_rows(job, rows, pane=False), list(job.keys))
    whole = [name for name in base.columns if name not in (COUNT, EVENTS)]
    keyed = hashed(base, list(job.keys), row_hash(whole).alias(ROW_HASH))
    operator = Frames(
        job.state("rows"),
        "sliding" if shape == "sliding" else "session",
        length,
        job.windowing.keep,
        final=job.final,
    )
    schema = _answers(keyed, {START: _LONG, END: _LONG, TIMES: _LONG}, without=(COUNT, ROW_HASH, MOMENT))
    return _evaluated(job, job.graph.operated(keyed, operator, job.node, schema))


# -- what comes out ---------------------------------------------------------------------------------------------------


def _answers(keyed: DataFrame, added: dict[str, pa.DataType], without: tuple[str, ...] = ()) -> pa.Schema:
    """The columns that an operator gives: those it gets without hashes and books, and its own."""
    left_out = {HASH, SECOND_HASH, EVENTS, *without}
    fields = [one for one in arrow_schema(keyed.schema) if one.name not in left_out]
    return pa.schema([*fields, *(pa.field(name, type_) for name, type_ in added.items())])


def _named(job: _Job, answers: DataFrame, values: dict[str, str]) -> DataFrame:
    """The answers with the names and values that the user asked for."""
    keys = [F.col(hidden).alias(key.name) for hidden, key in zip(job.keys, job.node.keys, strict=False)]
    calls = [F.expr(values.get(name, name)).alias(name) for name in job.calls]
    bounds = []
    if job.windowing is not None:
        bounds = [
            F.timestamp_micros(F.col(START)).alias("window_start"),
            F.timestamp_micros(F.col(END)).alias("window_end"),
            (F.col(REVISION) + 1).alias("revision"),
        ]
    valued = answers.select(*keys, *bounds, *calls, WEIGHT)
    made = [
        F.expr(outer).alias(one.name) for outer, one in zip(job.outers, job.node.aggregates, strict=True)
    ]
    kept = [quoted(key.name) for key in job.node.keys]
    return valued.select(*kept, *(["window_start", "window_end", "revision"] if bounds else []), *made, WEIGHT)

