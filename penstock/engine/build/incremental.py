"""Aggregates that add up: Spark sums up what an epoch adds to a group, an operator adds that to the state."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.accumulators import Accumulated, Accumulator
from penstock.engine.build.graph import STATE_PARTITION, events_of, weight_of, with_key_hashes
from penstock.engine.build.grouping import LOCAL, Grouping, answer_schema, assign_windows
from penstock.engine.build.sketches import join_stored_sketches
from penstock.engine.build.windows import floor_to
from penstock.engine.operators.accumulate import Accumulate
from penstock.engine.operators.contract import EVENTS, REVISION, WEIGHT
from penstock.engine.operators.count_distinct import DELTA, CountDistinct
from penstock.engine.operators.hop import PANE, Hop
from penstock.engine.operators.hyperloglog import RANK, RANK_SUM, USED_REGISTERS, HyperLogLog
from penstock.engine.operators.session import LAST, Sessions
from penstock.engine.operators.windows import END, START
from penstock.engine.state.columns import COUNT
from penstock.flow import plan as flow

_LONG = pa.int64()
_PIECE = "_piece"


def accumulate_groups(grouping: Grouping, rows: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """The changes of groups, without windows or in windows whose bounds do not depend on the rows."""
    window, accumulators = grouping.fixed_window, _accumulators(calls)
    joins = {accumulator.name: accumulator.join for accumulator in accumulators if accumulator.join is not None}
    operator = Accumulate(
        state=grouping.state_name("groups"),
        rules={accumulator.name: accumulator.rule for accumulator in accumulators},
        window=grouping.window_order,
        final=grouping.final,
        upserts=grouping.upserts,
        titles=_titles(grouping, calls),
    )
    distinct_calls = {name: call for name, call in calls.items() if call.distinct}
    if isinstance(window, flow.Hopping) and window.zone is None and not joins and not distinct_calls:
        return _accumulate_hopping(grouping, window, operator, _sum_groups(grouping, rows, calls))
    branches = [assign_windows(grouping, _sum_groups(grouping, rows, calls))]
    branches += [_distinct_parts(grouping, rows, name, call, branches[0]) for name, call in distinct_calls.items()]
    parts = branches[0]
    if len(branches) > 1 or isinstance(window, flow.Hopping):
        parts = _sum_parts(grouping, reduce(DataFrame.unionAll, branches), calls)
    groups = join_stored_sketches(with_key_hashes(parts, grouping.group_columns), operator, joins)
    schema = answer_schema(groups, {REVISION: _LONG, WEIGHT: _LONG})
    return grouping.graph.apply_operator(groups, operator, grouping.node, schema)


def _accumulate_hopping(grouping: Grouping, window: flow.Hopping, windows: Accumulate, panes: DataFrame) -> DataFrame:
    """The changes of groups in hopping windows, which the operator makes of panes."""
    panes = panes.drop(STATE_PARTITION).withColumnRenamed(LOCAL, PANE)
    changes = grouping.graph.partition_with_hashes(panes, list(grouping.keys))
    operator = Hop(windows, window.size, window.every, window.offset)
    schema = answer_schema(changes, {START: _LONG, END: _LONG, REVISION: _LONG, WEIGHT: _LONG}, PANE)
    return grouping.graph.apply_operator(changes, operator, grouping.node, schema)


def _sum_groups(grouping: Grouping, rows: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """The epoch's part of each group, by pane if there are windows."""
    groups = rows.groupBy(*grouping.key_columns(), *grouping.pane_column())
    sums = _aggregate_with_counts(rows, groups, *map(_aggregate_column, _accumulators(calls)))
    return sums.select("*", grouping.graph.state_partition([*grouping.keys, *grouping.pane_names]))


def _aggregate_with_counts(rows: DataFrame, groups: GroupedData, *columns: Column) -> DataFrame:
    """Aggregates of groups, with their number of rows and of events, which are mostly the same."""
    if WEIGHT in rows.columns or EVENTS in rows.columns:
        weights, events = F.sum(weight_of(rows)), F.sum(events_of(rows))
        return groups.agg(*columns, weights.cast("long").alias(COUNT), events.cast("long").alias(EVENTS))
    return groups.agg(*columns, F.count(F.lit(1)).alias(COUNT)).select("*", F.col(COUNT).alias(EVENTS))


def _aggregate_column(accumulator: Accumulator) -> Column:
    value = F.lit(None) if accumulator.aggregate is None else F.expr(accumulator.aggregate)
    return value.cast(accumulator.type).alias(accumulator.name)


def _titles(grouping: Grouping, calls: dict[str, Accumulated]) -> dict[str, str]:
    return grouping.titles(
        {name: [accumulator.name for accumulator in call.accumulators] for name, call in calls.items()}
    )


def _accumulators(calls: dict[str, Accumulated]) -> list[Accumulator]:
    return [accumulator for call in calls.values() for accumulator in call.accumulators]


def _sum_parts(grouping: Grouping, parts: DataFrame, calls: dict[str, Accumulated]) -> DataFrame:
    """Add up the parts of the same group, which come from different branches or panes."""
    keys = [*grouping.keys, *([START, END] if grouping.fixed_window else [])]
    columns = [
        F.expr(accumulator.gather).cast(accumulator.type).alias(accumulator.name)
        for accumulator in _accumulators(calls)
    ]
    groups = parts.groupBy(*keys).agg(*columns, F.sum(COUNT).alias(COUNT), F.sum(EVENTS).alias(EVENTS))
    return groups.select("*", grouping.graph.state_partition(keys))


def _distinct_parts(grouping: Grouping, rows: DataFrame, state: str, call: Accumulated, like: DataFrame) -> DataFrame:
    """What the epoch adds to the distinct values of each group, in the columns of `like`."""
    values = {f"_v{number}": F.expr(text) for number, text in enumerate(call.distinct)}
    max_rank = [] if call.rank is None else [F.max(RANK).alias(RANK)]
    rank = [] if call.rank is None else [F.expr(call.rank).cast("long").alias(RANK)]
    filtered_rows = (rows.where(call.filter) if call.filter else rows).select("*", *rank)
    value_columns = [column.alias(name) for name, column in values.items()]
    groups = filtered_rows.groupBy(*grouping.key_columns(), *grouping.pane_column(), *value_columns)
    no_events = F.lit(0).alias(EVENTS)
    counts = groups.agg(F.sum(weight_of(rows)).cast("long").alias(COUNT), no_events, *max_rank)
    counts = counts.where(" AND ".join(f"{name} IS NOT NULL" for name in values))
    keys = [*grouping.keys, *grouping.pane_names, *values]
    if isinstance(grouping.fixed_window, flow.Hopping):
        windows = assign_windows(grouping, counts)
        keys = [name for name in windows.columns if name not in (COUNT, EVENTS, RANK)]
        counts = windows.groupBy(*keys).agg(F.sum(COUNT).alias(COUNT), no_events, *max_rank)
        counts = counts.select("*", grouping.graph.state_partition(keys))
    else:
        counts = assign_windows(grouping, counts.select("*", grouping.graph.state_partition(keys)))
    changes = with_key_hashes(counts, [*grouping.group_columns, *values])
    return _align_columns(grouping, call, like, _apply_distinct_operator(grouping, state, call, changes))


def _apply_distinct_operator(grouping: Grouping, state: str, call: Accumulated, changes: DataFrame) -> DataFrame:
    """The changes of the accumulators of a call, under their names."""
    operator: CountDistinct | HyperLogLog
    operator = CountDistinct(grouping.state_name(f"distinct{state}"), grouping.window_order)
    output_types: dict[str, pa.DataType] = {DELTA: _LONG}
    if call.rank is not None:
        operator = HyperLogLog(grouping.state_name(f"registers{state}"), grouping.window_order)
        output_types = {RANK_SUM: pa.float64(), USED_REGISTERS: _LONG}
    parts = grouping.graph.apply_operator(changes, operator, grouping.node, answer_schema(changes, output_types))
    names = (accumulator.name for accumulator in call.accumulators)
    return parts.withColumnsRenamed(dict(zip(output_types, names, strict=True)))


def _align_columns(grouping: Grouping, call: Accumulated, like: DataFrame, parts: DataFrame) -> DataFrame:
    """The parts in the columns of `like`, with nothing in the other accumulators."""
    own_columns = {*grouping.keys, START, END, *(accumulator.name for accumulator in call.accumulators)}
    zero = F.lit(0)
    defaults = {COUNT: zero, EVENTS: zero, STATE_PARTITION: zero}
    return parts.select(
        *(
            (F.col(field.name) if field.name in own_columns else defaults.get(field.name, F.lit(None)))
            .cast(field.dataType)
            .alias(field.name)
            for field in like.schema
        )
    )


def accumulate_sessions(grouping: Grouping, rows: DataFrame, calls: dict[str, Accumulated], gap: int) -> DataFrame:
    """The changes of sessions. Spark sums up pieces of time no longer than the gap, so that none is in two sessions."""
    assert grouping.windowing is not None
    accumulators, at = _accumulators(calls), grouping.moment()
    pieces = _aggregate_with_counts(
        rows,
        rows.groupBy(*grouping.key_columns(), floor_to(at, gap, 0).alias(_PIECE)),
        *map(_aggregate_column, accumulators),
        F.min(at).alias(START),
        F.max(at).alias(LAST),
    )
    changes = grouping.graph.partition_with_hashes(pieces.drop(_PIECE), list(grouping.keys))
    operator = Sessions(
        state=grouping.state_name("sessions"),
        rules={accumulator.name: accumulator.rule for accumulator in accumulators},
        gap=gap,
        keep_after=grouping.windowing.keep,
        final=grouping.final,
        titles=_titles(grouping, calls),
    )
    schema = answer_schema(changes, {END: _LONG, REVISION: _LONG, WEIGHT: _LONG}, LAST)
    return grouping.graph.apply_operator(changes, operator, grouping.node, schema)
