"""Aggregates in groups and windows: those that add up are added up, the others are evaluated over all rows again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine.build.accumulators import accumulated
from penstock.engine.build.graph import Graph, check_key
from penstock.engine.build.grouping import analyse, named
from penstock.engine.build.incremental import accumulated_groups, accumulated_sessions
from penstock.engine.build.recompute import evaluated_frames, evaluated_groups
from penstock.engine.operators.contract import WEIGHT
from penstock.flow import plan as flow


def aggregate(graph: Graph, rows: DataFrame, node: flow.Aggregate) -> DataFrame:
    """The changes of the groups' answers."""
    job = analyse(graph, node)
    check_key(rows.select(*job.key_columns()), job.keys, f"{node.place}: group_by")
    window = node.windowing.window if node.windowing else None
    if isinstance(window, flow.Sliding):
        return named(job, evaluated_frames(job, rows, window), {})
    sessions = isinstance(window, flow.Session)
    adding = {name: accumulated(call, name, rows, sessions=sessions) for name, call in job.calls.items()}
    calls = {name: one for name, one in adding.items() if one is not None}
    adds_up = len(calls) == len(adding)
    values = {name: one.value for name, one in calls.items()}
    if isinstance(window, flow.Session):
        if adds_up and WEIGHT not in rows.columns:
            return named(job, accumulated_sessions(job, rows, calls, window.gap), values)
        return named(job, evaluated_frames(job, rows, window), {})
    if adds_up:
        return named(job, accumulated_groups(job, rows, calls), values)
    return named(job, evaluated_groups(job, rows), {})
