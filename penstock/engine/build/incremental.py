"""Aggregates that add up: Spark sums up what an epoch brings to a group, an operator adds it to what was there."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.accumulators import Accumulated, Accumulator
from penstock.engine.build.graph import SHARE, events_of, hashed, weight_of
from penstock.engine.build.grouping import LOCAL, Job, answers, in_windows
from penstock.engine.build.sketches import with_stored
from penstock.engine.build.windows import floored
from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import EVENTS, REVISION, WEIGHT
from penstock.engine.operators.count_distinct import DELTA, CountDistinct
from penstock.engine.operators.hop import PANE, Hop
from penstock.engine.operators.hyperloglog import RANK, SAID, USED, HyperLogLog
from penstock.engine.operators.session import LAST, Sessions
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from penstock.flow import plan as flow

_LONG = pa.int64()
_PIECE = "_piece"


def accumulated_groups(job: Job, rows: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """The changes of groups, in windows whose bounds do not depend on the rows or in none."""
    window, joins = job.fixed, {one.name: one.join for one in _accumulators(calls) if one.join is not None}
    operator = Accumulate(
        state=job.state("groups"),
        rules={one.name: one.rule for one in _accumulators(calls)},
        window=job.order,
        final=job.final,
        upserts=job.upserts,
        titles=_titles(job, calls),
    )
    distinct = any(one.distinct for one in calls.values())
    if isinstance(window, flow.Hopping) and window.zone is None and not joins and not distinct:
        return _hopped(job, window, operator, _summed(job, rows, calls))
    branches = [in_windows(job, _summed(job, rows, calls))]
    branches += [_distinct(job, rows, name, one, branches[0]) for name, one in calls.items() if one.distinct]
    parts = branches[0]
    if len(branches) > 1 or isinstance(window, flow.Hopping):
        parts = _added_up(job, reduce(DataFrame.unionAll, branches), calls)
    groups = with_stored(hashed(parts, job.group), operator, joins)
    return job.graph.operated(groups, operator, job.node, answers(groups, {REVISION: _LONG, WEIGHT: _LONG}))


def _hopped(job: Job, window: flow.Hopping, windows: Accumulate, panes: DataFrame) -> DataFrame:
    """The changes of groups in hopping windows, which the operator makes of panes."""
    keys = list(job.keys)
    together = job.graph.brought_together(panes.drop(SHARE).withColumnRenamed(LOCAL, PANE), keys)
    keyed = hashed(together, keys, job.graph.share(keys))
    operator = Hop(windows, window.size, window.every, window.offset)
    schema = answers(keyed, {START: _LONG, END: _LONG, REVISION: _LONG, WEIGHT: _LONG}, PANE)
    return job.graph.operated(keyed, operator, job.node, schema)


def _summed(job: Job, rows: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """An epoch's part of each group, by the pane of time where there are windows."""
    columns = [_over_rows(one).cast(one.type).alias(one.name) for one in _accumulators(calls)]
    summed = _counted(rows, rows.groupBy(*job.key_columns(), *job.pane()), *columns)
    return summed.select("*", job.graph.share([*job.keys, *([LOCAL] if job.fixed else [])]))


def _counted(rows: DataFrame, groups: GroupedData, *columns: Column) -> DataFrame:
    """Aggregates of groups, with how many rows they have now and how many events that took: mostly the same number."""
    if WEIGHT in rows.columns or EVENTS in rows.columns:
        weights, events = F.sum(weight_of(rows)), F.sum(events_of(rows))
        return groups.agg(*columns, weights.cast("long").alias(COUNT), events.cast("long").alias(EVENTS))
    return groups.agg(*columns, F.count(F.lit(1)).alias(COUNT)).select("*", F.col(COUNT).alias(EVENTS))


def _over_rows(one: Accumulator) -> Column:
    return F.lit(None) if one.aggregate is None else F.expr(one.aggregate)


def _titles(job: Job, calls: dict[str, Accumulated]) -> dict[str, str]:
    return job.titles({name: [one.name for one in call.accumulators] for name, call in calls.items()})


def _accumulators(calls: dict[str, Accumulated]) -> list[Accumulator]:
    return [one for call in calls.values() for one in call.accumulators]


def _added_up(job: Job, parts: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """Parts of the same group that came from different branches or panes, as one."""
    by = [*job.keys, *([START, END] if job.fixed else [])]
    columns = [F.expr(one.gather).cast(one.type).alias(one.name) for one in _accumulators(calls)]
    added = parts.groupBy(*by).agg(*columns, F.sum(COUNT).alias(COUNT), F.sum(EVENTS).alias(EVENTS))
    return added.select("*", job.graph.share(by))


def _distinct(job: Job, rows: DataFrame, name: str, call: Accumulated, like: DataFrame) -> DataFrame:
    """How what counts of the distinct values of each group changes, in the shape of `like`."""
    values = {f"_v{number}": F.expr(one) for number, one in enumerate(call.distinct)}
    ranks = [] if call.rank is None else [F.max(RANK).alias(RANK)]
    rank = [] if call.rank is None else [F.expr(call.rank).cast("long").alias(RANK)]
    chosen = (rows.where(call.filter) if call.filter else rows).select("*", *rank)
    by = [*job.key_columns(), *job.pane(), *(column.alias(value) for value, column in values.items())]
    none = F.lit(0).alias(EVENTS)
    weights = chosen.groupBy(*by).agg(F.sum(weight_of(rows)).cast("long").alias(COUNT), none, *ranks)
    weights = weights.where(" AND ".join(f"{value} IS NOT NULL" for value in values))
    where = [*job.keys, *([LOCAL] if job.fixed else []), *values]
    if isinstance(job.fixed, flow.Hopping):
        windows = in_windows(job, weights)
        where = [one for one in windows.columns if one not in (COUNT, EVENTS, RANK)]
        weights = windows.groupBy(*where).agg(F.sum(COUNT).alias(COUNT), none, *ranks)
        weights = weights.select("*", job.graph.share(where))
    else:
        weights = in_windows(job, weights.select("*", job.graph.share(where)))
    return _in_shape(job, call, like, _told_apart(job, name, call, hashed(weights, [*job.group, *values])))


def _told_apart(job: Job, name: str, call: Accumulated, keyed: DataFrame) -> DataFrame:
    """The changes of the call's accumulators, in their names."""
    operator: CountDistinct | HyperLogLog = CountDistinct(job.state(f"distinct{name}"), job.order)
    given: dict[str, pa.DataType] = {DELTA: _LONG}
    if call.rank is not None:
        operator = HyperLogLog(job.state(f"registers{name}"), job.order)
        given = {SAID: pa.float64(), USED: _LONG}
    found = job.graph.operated(keyed, operator, job.node, answers(keyed, given))
    return found.withColumnsRenamed(dict(zip(given, (one.name for one in call.accumulators), strict=True)))


def _in_shape(job: Job, call: Accumulated, like: DataFrame, found: DataFrame) -> DataFrame:
    """What was found, in the columns of `like`, with nothing in the other accumulators."""
    zero, kept = F.lit(0), {*job.keys, START, END, *(one.name for one in call.accumulators)}
    made = {COUNT: zero, EVENTS: zero, SHARE: zero}
    return found.select(
        *(
            (F.col(one.name) if one.name in kept else made.get(one.name, F.lit(None)))
            .cast(one.dataType)
            .alias(one.name)
            for one in like.schema
        )
    )


def accumulated_sessions(job: Job, rows: DataFrame, calls: dict[str, Accumulated], gap: int) -> DataFrame:
    """The changes of sessions: Spark sums up pieces shorter than the gap, none of which is in two sessions."""
    assert job.windowing is not None
    accumulators, at = _accumulators(calls), job.moment()
    pieces = _counted(
        rows,
        rows.groupBy(*job.key_columns(), floored(at, gap, 0).alias(_PIECE)),
        *(_over_rows(one).cast(one.type).alias(one.name) for one in accumulators),
        F.min(at).alias(START),
        F.max(at).alias(LAST),
    )
    keys = list(job.keys)
    together = job.graph.brought_together(pieces.drop(_PIECE), keys)
    keyed = hashed(together, keys, job.graph.share(keys))
    operator = Sessions(
        state=job.state("sessions"),
        rules={one.name: one.rule for one in accumulators},
        gap=gap,
        keep_after=job.windowing.keep,
        final=job.final,
        titles=_titles(job, calls),
    )
    schema = answers(keyed, {END: _LONG, REVISION: _LONG, WEIGHT: _LONG}, LAST)
    return job.graph.operated(keyed, operator, job.node, schema)
