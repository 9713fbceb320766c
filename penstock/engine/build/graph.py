"""The graph of an app while it is built: a DataFrame for each node, and the states that nodes keep.

A DataFrame of the graph holds changes: the columns of its node, and hidden ones. It has `_weight`, which is 1 or -1, if
the node's rows can be retracted. It has `_partition` and `_offset`, the origin of a row in the log, if a later node
needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody gives it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructType

from penstock.engine.build.needs import Needs
from penstock.engine.operators.contract import (
    EVENTS,
    HASH,
    OFFSET,
    PARTITION,
    SECOND_HASH,
    WEIGHT,
    Operator,
    PairOperator,
)
from penstock.engine.plan.next_cut import Times, latest
from penstock.engine.run.tasks import MapInArrow, assignment, operator_task, pair_operator_task, state_partition
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.fingerprint import fingerprint
from penstock.flow.lateness import clock_topics, max_delay, timed_inputs
from penstock.units import NO_TIME

ORIGIN = (PARTITION, OFFSET)
# The state partition that a row belongs to, by the columns by which it was partitioned.
STATE_PARTITION = "_share"
# The partition that a row is in, while it passes through an exchange.
_EXCHANGE_PARTITION = "_at"
# Makes the second hash of a key independent of the first.
SALT = 7
# One number has the null marks of this many columns.
COLUMNS_PER_BITMAP = 30


@dataclass(frozen=True, slots=True)
class NodeState:
    """A state and the node it belongs to.

    `sources`: the topics whose watermark is that of the state.
    `input`: the number of the node's input that the state holds, for a node with a state per input.
    `delay`: how much its watermark lags behind, since its rows may come that much later than their time.
    `ahead`: the topic groups of downstream steps that expire state by watermark. The state uses the latest of those
    watermarks and its own: what it emitted before that would be late downstream.
    """

    name: str
    node: flow.Node
    sources: tuple[str, ...]
    input: int = 0
    delay: int = 0
    ahead: frozenset[tuple[str, ...]] = frozenset()

    def watermark_at(self, times: Times) -> int:
        """The watermark of the state, given those of topic groups."""
        watermark = latest(times, self.ahead | {self.sources})
        return watermark if watermark == NO_TIME else watermark - self.delay


@dataclass(frozen=True, slots=True)
class Operation:
    """How an operator makes rows: its input, its function, and for each column of the rows the operator's column."""

    changes: DataFrame
    run: MapInArrow
    columns: dict[str, str]


@dataclass
class Graph:
    """What is known while an app is built.

    `partitions`: the number of state partitions.
    `shared_nodes`: read by several others, and to be evaluated once.
    `upserted_nodes`: their readers replace rows by key.
    `states`, `built_frames`: the states and the DataFrames of nodes so far.
    `operations`: DataFrames whose rows are those of an operator, perhaps with renamed columns.
    """

    spark: SparkSession
    partitions: int
    needs: Needs
    shared_nodes: frozenset[flow.Node]
    upserted_nodes: frozenset[flow.Node]
    states: dict[str, NodeState] = field(default_factory=dict)
    built_frames: dict[flow.Node, DataFrame] = field(default_factory=dict)
    operations: dict[DataFrame, Operation] = field(default_factory=dict)

    def apply_operator(self, changes: DataFrame, operator: Operator, node: flow.Node, output: pa.Schema) -> DataFrame:
        """Apply a stateful operator to changes that are partitioned by key and have a `_share` column."""
        self.states[operator.state] = _node_state(operator.state, node)
        return self._run(changes, operator.state, operator_task(operator, _operator_input(changes), output), output)

    def apply_pair_operator(
        self, changes: DataFrame, operator: PairOperator, node: flow.Node, output: pa.Schema
    ) -> DataFrame:
        """Apply an operator with a state for each of two sides."""
        for number, side in enumerate((operator.left, operator.right)):
            self.states[side.state] = _node_state(side.state, node, number)
        return self._run(
            changes, operator.left.state, pair_operator_task(operator, _operator_input(changes), output), output
        )

    def _run(self, changes: DataFrame, state: str, function: MapInArrow, output: pa.Schema) -> DataFrame:
        run = _check_partitions(state, function)
        rows = map_in_arrow(changes, run, output)
        self.operations[rows] = Operation(changes, run, {name: name for name in output.names})
        return rows

    def state_name(self, node: flow.Node, role: str) -> str:
        return f"{type(node).__name__.lower()}-{fingerprint(node)}-{role}"

    def partition_by(self, rows: DataFrame, keys: list[str]) -> DataFrame:
        """Rows partitioned by key: all rows of a key are in the same partition."""
        return rows.repartition(self.partitions, *map(quote, keys))

    def partition_with_hashes(self, rows: DataFrame, keys: list[str], *more: Column) -> DataFrame:
        """Rows partitioned by key, with what operators need to find their state."""
        return with_key_hashes(self.partition_by(rows, keys), keys, *more, self.state_partition(keys))

    def state_partition(self, keys: list[str]) -> Column:
        """The partition into which Spark puts rows by these columns: computed as `HashPartitioning` does."""
        return F.pmod(F.hash(*map(quote, keys)), F.lit(self.partitions)).alias(STATE_PARTITION)

    def evaluate_once(self, rows: DataFrame) -> DataFrame:
        """The same rows, evaluated once no matter how many branches read them: Spark runs equal exchanges once.

        The exchanges are equal only if no branch pushes its own filter or choice of columns below them. The condition
        prevents both: Spark pushes nothing below a condition that is not deterministic, and it reads every column.
        """
        nulls = (F.col(quote(name)).isNull() for name in rows.columns)
        return self._exchange(rows).where(reduce(Column.__or__, nulls, F.spark_partition_id() >= F.lit(0)))

    def _exchange(self, rows: DataFrame) -> DataFrame:
        """Rows after an exchange that leaves them in their partition, on which a view may rely."""
        with_partition = rows.withColumn(_EXCHANGE_PARTITION, F.pmod(F.spark_partition_id(), F.lit(self.partitions)))
        return with_partition.repartitionById(self.partitions, F.col(_EXCHANGE_PARTITION)).drop(_EXCHANGE_PARTITION)

    def spread_rows(self, rows: DataFrame) -> DataFrame:
        """Rows spread evenly over as many partitions as states have."""
        return rows.repartition(self.partitions, row_hash(rows, rows.columns))


def _node_state(name: str, node: flow.Node, number: int = 0) -> NodeState:
    if isinstance(node, flow.Distinct) and node.late is not None:
        return NodeState(name, node, clock_topics(node), number, node.late.delay)
    delay = max(map(max_delay, timed_inputs(node)), default=0)
    if isinstance(node, flow.Aggregate) and node.windowing and isinstance(node.windowing.window, flow.Sliding):
        delay += 1  # the end belongs to such a window, so it closes a microsecond later
    return NodeState(name, node, clock_topics(node), number, delay)


def retracts_input(node: flow.Node) -> bool:
    """Whether rows that a node reads can be retracted."""
    return any(upstream.shape.retracts for upstream in flow.inputs(node))


def _operator_input(changes: DataFrame) -> pa.Schema:
    """The columns of changes that an operator gets."""
    return without_fields(arrow_schema(changes.schema), STATE_PARTITION)


def _check_partitions(state: str, run: MapInArrow) -> MapInArrow:
    """Check, before the operator runs, that all rows are in their partition: others would go into the wrong state."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = state_partition(assignment().partitions)
        for batch in batches:
            partitions = batch.column(STATE_PARTITION)
            strays = partitions.filter(pc.not_equal(partitions, pa.scalar(task, pa.int32())))
            if len(strays):
                raise DeclarationError(
                    f"state {state}: task {task} got {len(strays)} rows of others, such as {strays[0]}",
                    hint="a function given to map must not change settings of Spark; if none does, report a bug",
                )
            yield batch.drop_columns([STATE_PARTITION])

    return lambda batches: run(check(batches))


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def user_columns(rows: DataFrame) -> list[str]:
    """The columns of the user."""
    return [name for name in rows.columns if not name.startswith("_")]


def hidden_columns(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name.startswith("_")]


def with_key_hashes(rows: DataFrame, keys: list[str], *more: Column) -> DataFrame:
    """Rows with the two hashes of their key."""
    first, second = key_hashes(rows, keys)
    return rows.select("*", first.alias(HASH), second.alias(SECOND_HASH), *more)


def key_hashes(rows: DataFrame, keys: list[str]) -> tuple[Column, Column]:
    columns = hash_inputs(rows, keys)
    return F.xxhash64(*columns), F.xxhash64(F.lit(SALT), *columns)


def row_hash(rows: DataFrame, names: list[str]) -> Column:
    return F.xxhash64(F.lit(SALT), *hash_inputs(rows, names))


def hash_inputs(rows: DataFrame, names: list[str]) -> list[Column]:
    """What Spark must hash so that rows which differ in these columns have different hashes.

    Spark skips nulls, and does not hash where a list ends: (1, null) and (null, 1) have the same hash, and so have
    ([1], []) and ([], [1]). So null marks and the lengths of lists are hashed too. Maps are hashed as their entries.
    """
    columns = {name: F.col(quote(name)) for name in names}
    values = [_with_null_marks(column, rows.schema[name].dataType) for name, column in columns.items()]
    if len(names) == 1 and isinstance(rows.schema[names[0]].dataType, AtomicType):
        return values
    marks = list(columns.values())
    return [
        *(_null_bits(marks[start : start + COLUMNS_PER_BITMAP]) for start in range(0, len(marks), COLUMNS_PER_BITMAP)),
        *values,
    ]


def _null_bits(columns: list[Column]) -> Column:
    """A number with a bit for each column, which is set if it is null."""
    bits = (F.when(column.isNull(), F.lit(1 << number)).otherwise(F.lit(0)) for number, column in enumerate(columns))
    return reduce(Column.bitwiseOR, bits)


def _with_null_marks(column: Column, type_: DataType) -> Column:
    """A value in which every part has a null mark before it, and every list its length."""

    def with_mark(part: Column, part_type: DataType) -> list[Column]:
        return [part.isNull(), _with_null_marks(part, part_type)]

    match type_:
        case MapType():
            entry = StructType().add("key", type_.keyType).add("value", type_.valueType)
            return _with_null_marks(F.map_entries(column), ArrayType(entry))
        case ArrayType():
            elements = F.transform(column, lambda element: F.struct(*with_mark(element, type_.elementType)))
            return F.struct(F.size(column), elements)
        case StructType():
            parts = [
                column_or_mark
                for field in type_
                for column_or_mark in with_mark(column.getField(field.name), field.dataType)
            ]
            return F.struct(*parts)
        case _:
            return column


def check_key(rows: DataFrame, names: Iterable[str], where: str) -> None:
    """Refuse keys by which Spark cannot partition rows."""
    for name in names:
        if has_map(rows.schema[name].dataType):
            raise DeclarationError(
                f"{where}: a map cannot be a key; column '{name}' is one",
                hint=f"use its entries: array_sort(map_entries({name}))",
            )


def has_map(type_: DataType) -> bool:
    match type_:
        case MapType():
            return True
        case ArrayType():
            return has_map(type_.elementType)
        case StructType():
            return any(has_map(field.dataType) for field in type_.fields)
        case _:
            return False


def map_in_arrow(rows: DataFrame, function: MapInArrow, output: pa.Schema) -> DataFrame:
    """`mapInArrow` for columns of any name: Spark's own reads a dot as a field of a struct, and takes no backquotes."""
    names = rows.columns
    if all(name.isidentifier() for name in names):
        return rows.mapInArrow(function, from_arrow_schema(output))

    def rename_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"_{number}" for number in range(len(names)))).mapInArrow(
        rename_columns, from_arrow_schema(output)
    )


def weight_of(rows: DataFrame) -> Column:
    return F.col(WEIGHT) if WEIGHT in rows.columns else F.lit(1)


def events_of(rows: DataFrame) -> Column:
    return F.col(EVENTS) if EVENTS in rows.columns else F.lit(1)


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(schema, timezone="UTC")])


def without_fields(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names])
