"""Any aggregate of Spark: rows of groups are kept, and Spark evaluates it again over all rows of what has changed.

Groups and windows are found again by the operator `GroupRows`; sliding windows and sessions, whose bounds depend on the
rows, by `RowWindows`. In the state a row stands once, with how often it is there.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import events_of, has_map, hashed, quoted, row_hash, weight_of
from penstock.engine.build.grouping import Job, answers, in_windows
from penstock.engine.build.weighing import LIVE, over_live_rows, weighed
from penstock.engine.operators.contract import EVENTS, MOMENT, REVISION, ROW_HASH, WEIGHT
from penstock.engine.operators.group_rows import TIMES, GroupRows
from penstock.engine.operators.replace import Replace
from penstock.engine.operators.row_windows import RowWindows
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.engine.state.columns import COUNT
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, columns_of

_LONG = pa.int64()
_COPY = "_copy"


def evaluated_groups(job: Job, rows: DataFrame) -> DataFrame:
    """The changes of groups, in windows whose bounds do not depend on the rows or in none."""
    columns = _columns(job, rows)
    given = rows.select(
        *job.key_columns(),
        *job.pane(),
        *columns,
        weight_of(rows).cast("long").alias(COUNT),
        events_of(rows).alias(EVENTS),
    )
    keyed = _kept(job, in_windows(job, given), job.group)
    operator = GroupRows(job.state("rows"), job.order, final=job.final)
    schema = answers(keyed, {TIMES: _LONG}, COUNT, ROW_HASH)
    return _evaluated(job, job.graph.operated(keyed, operator, job.node, schema))


def evaluated_frames(job: Job, rows: DataFrame, window: flow.Sliding | flow.Session) -> DataFrame:
    """The changes of sliding windows and sessions."""
    assert job.windowing is not None
    given = rows.select(
        *job.key_columns(),
        job.moment().alias(MOMENT),
        *_columns(job, rows),
        weight_of(rows).cast("long").alias(COUNT),
        events_of(rows).alias(EVENTS),
    )
    keyed = _kept(job, given, list(job.keys))
    sliding = isinstance(window, flow.Sliding)
    length = window.size if isinstance(window, flow.Sliding) else window.gap
    operator = RowWindows(
        job.state("rows"), "sliding" if sliding else "session", length, job.windowing.keep, final=job.final
    )
    schema = answers(keyed, {START: _LONG, END: _LONG, TIMES: _LONG}, COUNT, ROW_HASH, MOMENT)
    return _evaluated(job, job.graph.operated(keyed, operator, job.node, schema))


def _columns(job: Job, rows: DataFrame) -> list[Column]:
    """What the calls need of a row."""
    known = {name.lower(): name for name in rows.columns}
    needed = {known.get(name.lower(), name) for call in job.calls.values() for name in columns_of(call.text)}
    return [F.col(quoted(name)) for name in sorted(needed)]


def _kept(job: Job, rows: DataFrame, group: list[str]) -> DataFrame:
    """The rows of groups, where their state is, with how often they were added: mostly each different one once."""
    whole = [name for name in rows.columns if name not in (COUNT, EVENTS)]
    counted = job.graph.brought_together(rows, group)
    if not any(has_map(rows.schema[name].dataType) for name in whole):  # Spark groups by maps, and spoils them
        grouped = counted.groupBy(*map(quoted, whole))
        counted = grouped.agg(F.sum(COUNT).alias(COUNT), F.sum(EVENTS).alias(EVENTS))
    return hashed(counted, group, row_hash(counted, whole).alias(ROW_HASH), job.graph.share(group))


def _evaluated(job: Job, groups: DataFrame) -> DataFrame:
    """The answers of groups that come with all their rows, in place of those they had."""
    by = [*job.keys, *([START, END] if job.windowing else [])]
    found = _answered(job, groups, by)
    keyed = hashed(found, by, job.graph.share(by))
    order = WindowOrder(1, 0, _kept_for(job.windowing)) if job.windowing is not None else None
    operator = Replace(job.state("answers"), order, upserts=job.upserts)
    return job.graph.operated(keyed, operator, job.node, answers(keyed, {REVISION: _LONG, WEIGHT: _LONG}))


def _kept_for(windowing: flow.Windowing) -> int:
    """How long after the end of a window its answer may still change: a session as long as an event can join it."""
    window = windowing.window
    return windowing.keep + (window.reach if isinstance(window, flow.Session) else 0)


def _answered(job: Job, groups: DataFrame, by: list[str]) -> DataFrame:
    """A row for each group with what its calls give, and whether it has any rows."""
    texts = {name: text for name, call in job.calls.items() if (text := weighed(call, groups)) is not None}
    if len(texts) < len(job.calls):
        texts = {name: over_live_rows(call) for name, call in job.calls.items()}
        groups = _repeated(groups)
    calls = {name: F.expr(text).alias(name) for name, text in texts.items()}
    live = F.max(F.when(F.expr(LIVE), 1).otherwise(0)).cast("long").alias(COUNT)
    apart = _to_be_apart(job.calls)
    if not apart:
        return groups.groupBy(*by).agg(*calls.values(), live)
    once = job.graph.worked_out_once(groups)
    first = once.groupBy(*by).agg(*(column for name, column in calls.items() if name not in apart), live)
    second = once.groupBy(*by).agg(*(calls[name] for name in apart))
    both = first.unionByName(second, allowMissingColumns=True).groupBy(*by)
    return both.agg(*(F.first(name, ignorenulls=True).alias(name) for name in (*calls, COUNT)))


def _repeated(groups: DataFrame) -> DataFrame:
    """Rows as often as they are there, and once where a row only says that its group was touched."""
    copies = F.sequence(F.lit(1), F.greatest(F.col(TIMES), F.lit(1)).cast("int"))
    return groups.select("*", F.explode(copies).alias(_COPY))


def _to_be_apart(calls: dict[str, Call]) -> set[str]:
    """Calls that Spark does not plan beside the others: ordered ones (`listagg`), where several are distinct."""
    distinct = {call.arguments for call in calls.values() if call.distinct}
    ordered = {name for name, call in calls.items() if "order by" in " ".join(call.text.lower().split())}
    return ordered if len(distinct) > 1 and len(ordered) < len(calls) else set()
