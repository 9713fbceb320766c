"""Aggregates in groups and windows: added up if all of them can be, otherwise evaluated over all rows again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine.build.accumulators import as_accumulators
from penstock.engine.build.graph import Graph, check_key
from penstock.engine.build.grouping import analyse, name_answers
from penstock.engine.build.incremental import accumulate_groups, accumulate_sessions
from penstock.engine.build.recompute import recompute_groups, recompute_row_windows
from penstock.flow import plan as flow


def aggregate(graph: Graph, rows: DataFrame, node: flow.Aggregate) -> DataFrame:
    """The changes of the groups' answers."""
    grouping = analyse(graph, node)
    check_key(rows.select(*grouping.key_columns()), grouping.keys, f"{node.location}: group_by")
    window = node.windowing.window if node.windowing else None
    if isinstance(window, flow.Sliding):
        return name_answers(grouping, recompute_row_windows(grouping, rows, window), {})
    sessions = isinstance(window, flow.Session)
    accumulators = {name: as_accumulators(call, name, rows, sessions=sessions) for name, call in grouping.calls.items()}
    calls = {name: call for name, call in accumulators.items() if call is not None}
    adds_up = len(calls) == len(accumulators)
    values = {name: call.value for name, call in calls.items()}
    if isinstance(window, flow.Session):
        if adds_up:
            return name_answers(grouping, accumulate_sessions(grouping, rows, calls, window.gap), values)
        return name_answers(grouping, recompute_row_windows(grouping, rows, window), {})
    if adds_up:
        return name_answers(grouping, accumulate_groups(grouping, rows, calls), values)
    return name_answers(grouping, recompute_groups(grouping, rows), {})
