"""The graph of DataFrames of an app: one per node, made from those it reads from, and the states they keep.

A DataFrame here holds changes: the columns of its node and hidden ones. `_weight` is there where the node's rows can be
taken back. `_partition` and `_offset` are there where somebody further on needs the place a row has in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody gives it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.engine.operators.contract import HASH, SECOND_HASH, WEIGHT, Operator
from penstock.engine.tasks import stateful
from penstock.flow import plan as flow
from penstock.flow.fingerprint import fingerprint

PARTITION = "_partition"
OFFSET = "_offset"
ORIGIN = (PARTITION, OFFSET)
# Makes the second hash of a key another function of it than the first.
SALT = 7


@dataclass(frozen=True, slots=True)
class StateOf:
    """A state and the node it belongs to; `sources` are the topics whose watermark is its time."""

    name: str
    node: flow.Node
    sources: tuple[str, ...]


@dataclass
class Graph:
    """What is known while an app is built: the session, how many state partitions there are, and the states so far."""

    spark: SparkSession
    partitions: int
    source_tasks: int
    needs: Needs
    shared: frozenset[flow.Node]
    upserted: frozenset[flow.Node]
    states: dict[str, StateOf] = field(default_factory=dict)
    built: dict[flow.Node, DataFrame] = field(default_factory=dict)

    def operated(self, changes: DataFrame, operator: Operator, node: flow.Node, output: pa.Schema) -> DataFrame:
        """Changes that were brought together by key, through a stateful operator."""
        self.states[operator.state] = StateOf(operator.state, node, timed_sources(node))
        given = arrow_schema(changes.schema)
        return changes.mapInArrow(stateful(operator, given, output), from_arrow_schema(output))

    def state_name(self, node: flow.Node, role: str) -> str:
        return f"{type(node).__name__.lower()}-{fingerprint(node)}-{role}"

    def brought_together(self, rows: DataFrame, by: list[str]) -> DataFrame:
        """All rows of one key in one partition."""
        columns = [F.col(quoted(name)) for name in by] or [F.lit(0)]
        return rows.repartition(self.partitions, *columns)


@dataclass(frozen=True, slots=True)
class Needs:
    """What later nodes need of earlier ones: the columns of sources, and which nodes must carry the rows' origin."""

    columns: dict[flow.Node, frozenset[str]]
    origin: frozenset[flow.Node]


Builder = Callable[[Graph, flow.Node], DataFrame]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def columns_of_rows(rows: DataFrame) -> list[str]:
    """The user's columns."""
    return [name for name in rows.columns if not name.startswith("_")]


def hidden_of_rows(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name.startswith("_")]


def hashed(rows: DataFrame, by: list[str], *more: Column) -> DataFrame:
    """Rows with the two hashes of a key."""
    columns = [F.col(quoted(name)) for name in by] or [F.lit(0)]
    return rows.select(
        "*",
        F.xxhash64(*columns).alias(HASH),
        F.xxhash64(F.lit(SALT), *columns).alias(SECOND_HASH),
        *more,
    )


def row_hash(columns: list[str]) -> Column:
    return F.xxhash64(F.lit(SALT), *(F.col(quoted(name)) for name in columns))


def weight_of(rows: DataFrame) -> Column:
    return F.col(WEIGHT) if WEIGHT in rows.columns else F.lit(1)


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in to_arrow_schema(schema, timezone="UTC")])


def timed_sources(node: flow.Node) -> tuple[str, ...]:
    """The topics with event time that a node reads from, directly or not."""
    if isinstance(node, flow.Topic):
        return (node.name,) if node.timing else ()
    found = {name for one in flow.inputs(node) for name in timed_sources(one)}
    return tuple(sorted(found))
