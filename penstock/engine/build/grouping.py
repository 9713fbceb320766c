"""An aggregate node, analysed: names for its keys and calls, and what all ways to compute it have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import STATE_PARTITION, Graph, arrow_schema, quote, without_fields
from penstock.engine.build.windows import moment, pane_of, starts_of, to_utc, window_order
from penstock.engine.operators.contract import EVENTS, HASH, REVISION, SECOND_HASH, WEIGHT
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, split_aggregates
from penstock.flow.reading import tokens_of

# The start of a pane or window, in the local time of the window's zone.
LOCAL = "_local"
_NUMBER = "_number"


@dataclass(frozen=True, slots=True)
class Grouping:
    """An aggregate node with its expressions split up: keys are `_k0`, `_k1`, ..., aggregate calls `_a0`, `_a1`, ...

    `outers` are the expressions around the calls.
    """

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
        return self.node in self.graph.upserted_nodes

    @property
    def fixed_window(self) -> flow.Tumbling | flow.Hopping | None:
        """The window, if its bounds do not depend on the rows."""
        window = self.windowing.window if self.windowing else None
        return window if isinstance(window, flow.Tumbling | flow.Hopping) else None

    @property
    def window_order(self) -> WindowOrder | None:
        return window_order(self.windowing) if self.windowing and self.fixed_window else None

    @property
    def group_columns(self) -> list[str]:
        """The columns that identify a group, in a window if its bounds do not depend on the rows."""
        return [*self.keys, *([START] if self.fixed_window else [])]

    @property
    def pane_names(self) -> list[str]:
        """The name of the column of `pane_column`, if there is one."""
        return [LOCAL] if self.fixed_window else []

    def key_columns(self) -> list[Column]:
        if not self.node.keys:
            return [F.lit(0).alias(self.keys[0])]
        return [F.expr(key.expression).alias(name) for key, name in zip(self.node.keys, self.keys, strict=True)]

    def pane_column(self) -> list[Column]:
        """The pane of time that a row is in, if windows are made of panes."""
        return [pane_of(self.fixed_window, self.moment()).alias(LOCAL)] if self.fixed_window else []

    def moment(self) -> Column:
        return moment(self.node.input.shape)

    def titles(self, parts: dict[str, list[str]]) -> dict[str, str]:
        """For the accumulators of each call the name that errors use for them."""
        return {
            part: f"{self.node.location}: {self.calls[name].text}" for name, names in parts.items() for part in names
        }

    def state_name(self, role: str) -> str:
        return self.graph.state_name(self.node, role)


def analyse(graph: Graph, node: flow.Aggregate) -> Grouping:
    calls: dict[Call, str] = {}
    outers = []
    for aggregate in node.aggregates:
        parts = split_aggregates(aggregate.expression)
        # Calls are numbered across the whole node; equal ones are evaluated once.
        names = {f"_a{number}": calls.setdefault(call, f"_a{len(calls)}") for number, call in enumerate(parts.calls)}
        outers.append(_rename_tokens(parts.outer, names))
    # Without keys all rows are one group. It gets a key, since Spark treats a group without one differently.
    keys = tuple(f"_k{number}" for number in range(len(node.keys) or 1))
    return Grouping(graph, node, keys, tuple(outers), {name: call for call, name in calls.items()})


def _rename_tokens(outer: str, names: dict[str, str]) -> str:
    text, end = "", 0
    for token in tokens_of(outer):
        text += outer[end : token.start] + names.get(token.raw, token.raw)
        end = token.end
    return text + outer[end:]


def assign_windows(grouping: Grouping, rows: DataFrame) -> DataFrame:
    """Replace the pane of rows by their window: one tumbling window, or several hopping ones with a row each."""
    if not grouping.fixed_window:
        return rows
    if isinstance(grouping.fixed_window, flow.Hopping):
        rows = _assign_hopping_windows(grouping.fixed_window, rows)
    start, columns = F.col(LOCAL), [quote(name) for name in rows.columns if name != LOCAL]
    return rows.select(
        *columns,
        to_utc(start, grouping.fixed_window.zone).alias(START),
        to_utc(start + F.lit(grouping.fixed_window.size), grouping.fixed_window.zone).alias(END),
    )


def _assign_hopping_windows(window: flow.Hopping, rows: DataFrame) -> DataFrame:
    columns = [quote(name) for name in rows.columns if name not in (LOCAL, EVENTS)]
    windows = rows.select(*columns, EVENTS, F.posexplode(starts_of(window, F.col(LOCAL))).alias(_NUMBER, LOCAL))
    # In the accounts an event counts once, in the last of its windows.
    once = F.when(F.col(_NUMBER) == 0, F.col(EVENTS)).otherwise(F.lit(0)).alias(EVENTS)
    return windows.select(*columns, once, LOCAL)


def answer_schema(changes: DataFrame, extra: dict[str, pa.DataType], *dropped_columns: str) -> pa.Schema:
    """The columns that an operator emits: those of its input without hashes and the like, and its own."""
    fields = without_fields(arrow_schema(changes.schema), HASH, SECOND_HASH, STATE_PARTITION, EVENTS, *dropped_columns)
    return pa.schema([*fields, *(pa.field(name, type_) for name, type_ in extra.items())])


def name_answers(grouping: Grouping, answers: DataFrame, values: dict[str, str]) -> DataFrame:
    """The answers with the names and values that the user declared; `values` are the expressions of calls."""
    keys = [F.col(hidden).alias(key.name) for hidden, key in zip(grouping.keys, grouping.node.keys, strict=False)]
    calls = [F.expr(values.get(name, name)).alias(name) for name in grouping.calls]
    bounds = {}
    if grouping.windowing is not None:
        bounds = {
            "window_start": F.timestamp_micros(F.col(START)),
            "window_end": F.timestamp_micros(F.col(END)),
            "revision": F.col(REVISION),
        }
    with_calls = answers.select(*keys, *(column.alias(name) for name, column in bounds.items()), *calls, WEIGHT)
    aggregates = [
        F.expr(outer).alias(aggregate.name)
        for outer, aggregate in zip(grouping.outers, grouping.node.aggregates, strict=True)
    ]
    rows = with_calls.select(*(quote(key.name) for key in grouping.node.keys), *bounds, *aggregates, WEIGHT)
    operation, columns = grouping.graph.operations[answers], _renamed_columns(grouping, values)
    if set(columns.values()) <= set(answers.columns):
        grouping.graph.operations[rows] = replace(operation, columns=columns)
    return rows


def _renamed_columns(grouping: Grouping, values: dict[str, str]) -> dict[str, str]:
    """For each column of the answers the operator's column that it renames, or an expression to evaluate."""
    keys = {key.name: hidden for hidden, key in zip(grouping.keys, grouping.node.keys, strict=False)}
    bounds = {"window_start": START, "window_end": END, "revision": REVISION} if grouping.windowing else {}
    aggregates = {
        aggregate.name: values.get(outer, outer)
        for outer, aggregate in zip(grouping.outers, grouping.node.aggregates, strict=True)
    }
    return {**keys, **bounds, **aggregates, WEIGHT: WEIGHT}
