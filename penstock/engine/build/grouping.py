"""An aggregate node taken apart: names for its keys and calls, and what all ways to work it out have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import SHARE, Graph, arrow_schema, quoted, without
from penstock.engine.build.windows import moment, order_of, pane_of, starts_of, universal
from penstock.engine.operators.contract import EVENTS, HASH, REVISION, SECOND_HASH, WEIGHT
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.flow import plan as flow
from penstock.flow.expressions import Call, split_aggregates
from penstock.flow.reading import tokens_of

# The start of a pane or window by the clocks of the window's zone.
LOCAL = "_local"
_NUMBER = "_number"


@dataclass(frozen=True, slots=True)
class Job:
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

    @property
    def group(self) -> list[str]:
        """The columns that tell groups apart, in windows whose bounds do not depend on the rows."""
        return [*self.keys, *([START] if self.fixed else [])]

    def key_columns(self) -> list[Column]:
        if not self.node.keys:
            return [F.lit(0).alias(self.keys[0])]
        return [F.expr(key.expression).alias(name) for key, name in zip(self.node.keys, self.keys, strict=True)]

    def pane(self) -> list[Column]:
        """The piece of time that a row is in, where windows are made of such."""
        return [pane_of(self.fixed, self.moment()).alias(LOCAL)] if self.fixed else []

    def moment(self) -> Column:
        return moment(self.node.input.shape)

    def titles(self, parts: dict[str, list[str]]) -> dict[str, str]:
        """For the parts of each call what the user knows it by."""
        return {part: f"{self.node.place}: {self.calls[name].text}" for name, some in parts.items() for part in some}

    def state(self, role: str) -> str:
        return self.graph.state_name(self.node, role)


def analyse(graph: Graph, node: flow.Aggregate) -> Job:
    calls: dict[Call, str] = {}
    outers = []
    for one in node.aggregates:
        split = split_aggregates(one.expression)
        # Calls are numbered through the whole node; equal ones are evaluated once.
        names = {f"_a{number}": calls.setdefault(call, f"_a{len(calls)}") for number, call in enumerate(split.calls)}
        outers.append(_renamed(split.outer, names))
    # Without keys all rows are one group, which has a key of its own: Spark treats groups without any differently.
    keys = tuple(f"_k{number}" for number in range(len(node.keys) or 1))
    return Job(graph, node, keys, tuple(outers), {name: call for call, name in calls.items()})


def _renamed(outer: str, names: dict[str, str]) -> str:
    text, at = "", 0
    for token in tokens_of(outer):
        text += outer[at : token.start] + names.get(token.raw, token.raw)
        at = token.end
    return text + outer[at:]


def in_windows(job: Job, rows: DataFrame) -> DataFrame:
    """Rows with their pane as rows with their window: a pane is in one tumbling window or in several hopping ones."""
    if not job.fixed:
        return rows
    if isinstance(job.fixed, flow.Hopping):
        rows = _hopped(job.fixed, rows)
    start, own = F.col(LOCAL), [quoted(name) for name in rows.columns if name != LOCAL]
    return rows.select(
        *own,
        universal(start, job.fixed.zone).alias(START),
        universal(start + F.lit(job.fixed.size), job.fixed.zone).alias(END),
    )


def _hopped(window: flow.Hopping, rows: DataFrame) -> DataFrame:
    own = [quoted(name) for name in rows.columns if name not in (LOCAL, EVENTS)]
    windows = rows.select(*own, EVENTS, F.posexplode(starts_of(window, F.col(LOCAL))).alias(_NUMBER, LOCAL))
    # In the books an event counts once, in the last of its windows.
    once = F.when(F.col(_NUMBER) == 0, F.col(EVENTS)).otherwise(F.lit(0)).alias(EVENTS)
    return windows.select(*own, once, LOCAL)


def answers(keyed: DataFrame, added: dict[str, pa.DataType], *left_out: str) -> pa.Schema:
    """The columns that an operator gives: those it gets without hashes and books, and its own."""
    given = without(arrow_schema(keyed.schema), HASH, SECOND_HASH, SHARE, EVENTS, *left_out)
    return pa.schema([*given, *(pa.field(name, type_) for name, type_ in added.items())])


def named(job: Job, found: DataFrame, values: dict[str, str]) -> DataFrame:
    """The answers with the names and values that the user asked for; `values` says how a call's is made."""
    keys = [F.col(hidden).alias(key.name) for hidden, key in zip(job.keys, job.node.keys, strict=False)]
    calls = [F.expr(values.get(name, name)).alias(name) for name in job.calls]
    bounds = {}
    if job.windowing is not None:
        bounds = {
            "window_start": F.timestamp_micros(F.col(START)),
            "window_end": F.timestamp_micros(F.col(END)),
            "revision": F.col(REVISION),
        }
    valued = found.select(*keys, *(column.alias(name) for name, column in bounds.items()), *calls, WEIGHT)
    made = [F.expr(outer).alias(one.name) for outer, one in zip(job.outers, job.node.aggregates, strict=True)]
    rows = valued.select(*(quoted(key.name) for key in job.node.keys), *bounds, *made, WEIGHT)
    operation, columns = job.graph.operations[found], _renamed_columns(job, values)
    if set(columns.values()) <= set(found.columns):
        job.graph.operations[rows] = replace(operation, columns=columns)
    return rows


def _renamed_columns(job: Job, values: dict[str, str]) -> dict[str, str]:
    """For each column of the answers the one it is made of. What is no column's name has to be evaluated."""
    keys = {key.name: hidden for hidden, key in zip(job.keys, job.node.keys, strict=False)}
    bounds = {"window_start": START, "window_end": END, "revision": REVISION} if job.windowing else {}
    made = {one.name: values.get(outer, outer) for outer, one in zip(job.outers, job.node.aggregates, strict=True)}
    return {**keys, **bounds, **made, WEIGHT: WEIGHT}
