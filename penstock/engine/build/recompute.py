"""Any aggregate of Spark: the state holds the rows of groups, and Spark evaluates the groups that change again.

The operator `GroupRows` finds the rows of groups and windows; `RowWindows` those of sliding windows and sessions, whose
bounds depend on the rows. The state holds each different row once, with its count.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import events_of, has_map, quote, row_hash, weight_of, with_key_hashes
from penstock.engine.build.grouping import Grouping, answer_schema, assign_windows
from penstock.engine.build.weighing import LIVE, restrict_to_live_rows, weighted_call
from penstock.engine.operators.contract import EVENTS, MOMENT, REVISION, ROW_HASH, WEIGHT
from penstock.engine.operators.group_rows import MULTIPLICITY, GroupRows
from penstock.engine.operators.replace import Replace
from penstock.engine.operators.row_windows import RowWindows
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.engine.state.columns import COUNT
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, columns_of

_LONG = pa.int64()
_COPY = "_copy"


def recompute_groups(grouping: Grouping, rows: DataFrame) -> DataFrame:
    """The changes of groups, without windows or in windows whose bounds do not depend on the rows."""
    needed_rows = _needed_rows(grouping, rows, *grouping.pane_column())
    changes = _count_rows(grouping, assign_windows(grouping, needed_rows), grouping.group_columns)
    operator = GroupRows(grouping.state_name("rows"), grouping.window_order, final=grouping.final)
    schema = answer_schema(changes, {MULTIPLICITY: _LONG}, COUNT, ROW_HASH)
    return _replace_answers(grouping, grouping.graph.apply_operator(changes, operator, grouping.node, schema))


def recompute_row_windows(grouping: Grouping, rows: DataFrame, window: flow.Sliding | flow.Session) -> DataFrame:
    """The changes of sliding windows and sessions."""
    assert grouping.windowing is not None
    needed_rows = _needed_rows(grouping, rows, grouping.moment().alias(MOMENT))
    changes = _count_rows(grouping, needed_rows, list(grouping.keys))
    is_sliding = isinstance(window, flow.Sliding)
    length = window.size if isinstance(window, flow.Sliding) else window.gap
    operator = RowWindows(
        grouping.state_name("rows"),
        "sliding" if is_sliding else "session",
        length,
        grouping.windowing.keep,
        final=grouping.final,
    )
    schema = answer_schema(changes, {START: _LONG, END: _LONG, MULTIPLICITY: _LONG}, COUNT, ROW_HASH, MOMENT)
    return _replace_answers(grouping, grouping.graph.apply_operator(changes, operator, grouping.node, schema))


def _needed_rows(grouping: Grouping, rows: DataFrame, *time: Column) -> DataFrame:
    """The rows with their keys, their time if it matters, the columns that calls need, and their counts."""
    return rows.select(
        *grouping.key_columns(),
        *time,
        *_needed_columns(grouping, rows),
        weight_of(rows).cast("long").alias(COUNT),
        events_of(rows).alias(EVENTS),
    )


def _needed_columns(grouping: Grouping, rows: DataFrame) -> list[Column]:
    by_lower_name = {name.lower(): name for name in rows.columns}
    names = {name for call in grouping.calls.values() for name in columns_of(call.text)}
    return [F.col(quote(name)) for name in sorted({by_lower_name.get(name.lower(), name) for name in names})]


def _count_rows(grouping: Grouping, rows: DataFrame, group: list[str]) -> DataFrame:
    """The rows of groups in their state partitions, with their counts; mostly each different row once."""
    columns = [name for name in rows.columns if name not in (COUNT, EVENTS)]
    counted_rows = grouping.graph.partition_by(rows, group)
    if not any(has_map(rows.schema[name].dataType) for name in columns):  # Spark would change maps by grouping
        groups = counted_rows.groupBy(*map(quote, columns))
        counted_rows = groups.agg(F.sum(COUNT).alias(COUNT), F.sum(EVENTS).alias(EVENTS))
    hash_of_row = row_hash(counted_rows, columns).alias(ROW_HASH)
    return with_key_hashes(counted_rows, group, hash_of_row, grouping.graph.state_partition(group))


def _replace_answers(grouping: Grouping, groups: DataFrame) -> DataFrame:
    """Evaluate groups that come with all their rows, and replace their old answers."""
    keys = [*grouping.keys, *([START, END] if grouping.windowing else [])]
    answers = _evaluate_groups(grouping, groups, keys)
    changes = with_key_hashes(answers, keys, grouping.graph.state_partition(keys))
    order = WindowOrder(1, 0, grouping.windowing.correction_period) if grouping.windowing is not None else None
    operator = Replace(grouping.state_name("answers"), order, upserts=grouping.upserts)
    schema = answer_schema(changes, {REVISION: _LONG, WEIGHT: _LONG})
    return grouping.graph.apply_operator(changes, operator, grouping.node, schema)


def _evaluate_groups(grouping: Grouping, groups: DataFrame, keys: list[str]) -> DataFrame:
    """A row for each group with the values of its calls, and whether it has any rows."""
    texts = {name: text for name, call in grouping.calls.items() if (text := weighted_call(call, groups)) is not None}
    if len(texts) < len(grouping.calls):
        texts = {name: restrict_to_live_rows(call) for name, call in grouping.calls.items()}
        groups = _repeat_rows(groups)
    calls = {name: F.expr(text).alias(name) for name, text in texts.items()}
    live = F.max(F.when(F.expr(LIVE), 1).otherwise(0)).cast("long").alias(COUNT)
    separate = _calls_to_separate(grouping.calls)
    if not separate:
        return groups.groupBy(*keys).agg(*calls.values(), live)
    rows_of_groups = grouping.graph.evaluate_once(groups)
    first = rows_of_groups.groupBy(*keys).agg(*(column for name, column in calls.items() if name not in separate), live)
    second = rows_of_groups.groupBy(*keys).agg(*(calls[name] for name in separate))
    halves = first.unionByName(second, allowMissingColumns=True).groupBy(*keys)
    return halves.agg(*(F.first(name, ignorenulls=True).alias(name) for name in (*calls, COUNT)))


def _repeat_rows(groups: DataFrame) -> DataFrame:
    """Repeat rows by their multiplicity; a row that only says that its group was touched stays."""
    copies = F.sequence(F.lit(1), F.greatest(F.col(MULTIPLICITY), F.lit(1)).cast("int"))
    return groups.select("*", F.explode(copies).alias(_COPY))


def _calls_to_separate(calls: dict[str, Call]) -> set[str]:
    """Calls that Spark cannot plan with the others: ordered ones (`listagg`), if several others are distinct."""
    distinct_arguments = {call.arguments for call in calls.values() if call.distinct}
    ordered_calls = {name for name, call in calls.items() if "order by" in " ".join(call.text.lower().split())}
    return ordered_calls if len(distinct_arguments) > 1 and len(ordered_calls) < len(calls) else set()
