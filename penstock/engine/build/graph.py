"""The graph of DataFrames of an app: one per node, made from those it reads from, and the states they keep.

A DataFrame here holds changes: the columns of its node and hidden ones. `_weight`, which is 1 or -1, is there where the
node's rows can be taken back. `_partition` and `_offset` are there where somebody further on needs the place that a row
has in the log.
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
from penstock.engine.run.tasks import InArrow, assignment, paired, state_partition, stateful
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.flow.fingerprint import fingerprint
from penstock.flow.lateness import delayed_by, timed_inputs, timed_sources
from penstock.units import NO_TIME

ORIGIN = (PARTITION, OFFSET)
# The state partition that a row belongs to, by the columns that brought it where it is.
SHARE = "_share"
# The partition that a row is in, while it goes through an exchange.
_AT = "_at"
# Makes the second hash of a key another function of it than the first.
SALT = 7
# So many columns have their marks in one number.
MARKS = 30


@dataclass(frozen=True, slots=True)
class StateOf:
    """A state and the node it belongs to; `sources` are the topics whose watermark is its time.

    `input` is the number of the node's input that it keeps, where a node keeps several apart.
    `ahead` are those of the steps behind it that forget by time. Where one of them has come further, that is its time:
    what it gave would be too late for them. Its clock is `delay` slow, where its rows come so much after their time.
    """

    name: str
    node: flow.Node
    sources: tuple[str, ...]
    input: int = 0
    delay: int = 0
    ahead: frozenset[tuple[str, ...]] = frozenset()

    def time_at(self, times: Times) -> int:
        """Its time, when those of groups of topics are these."""
        time = latest(times, self.ahead | {self.sources})
        return time if time == NO_TIME else time - self.delay


@dataclass(frozen=True, slots=True)
class Operation:
    """How rows come out of an operator: what it runs over, and for each of the rows' columns the one it gives."""

    changes: DataFrame
    run: InArrow
    columns: dict[str, str]


@dataclass
class Graph:
    """What is known while an app is built: the session, how many state partitions there are, and the states so far.

    `operations` knows the rows that come out of an operator as they are, or under other names.
    """

    spark: SparkSession
    partitions: int
    needs: Needs
    shared: frozenset[flow.Node]
    upserted: frozenset[flow.Node]
    states: dict[str, StateOf] = field(default_factory=dict)
    built: dict[flow.Node, DataFrame] = field(default_factory=dict)
    operations: dict[DataFrame, Operation] = field(default_factory=dict)

    def operated(self, changes: DataFrame, operator: Operator, node: flow.Node, output: pa.Schema) -> DataFrame:
        """Changes that were brought together by key, and know their share, through a stateful operator."""
        self.states[operator.state] = _state_of(operator.state, node)
        return self._run(changes, operator.state, stateful(operator, _given(changes), output), output)

    def joined(self, changes: DataFrame, operator: PairOperator, node: flow.Node, output: pa.Schema) -> DataFrame:
        """The same through an operator that keeps two sides."""
        for number, side in enumerate((operator.left, operator.right)):
            self.states[side.state] = _state_of(side.state, node, number)
        return self._run(changes, operator.left.state, paired(operator, _given(changes), output), output)

    def _run(self, changes: DataFrame, state: str, function: InArrow, output: pa.Schema) -> DataFrame:
        run = _in_their_place(state, function)
        rows = in_arrow(changes, run, output)
        self.operations[rows] = Operation(changes, run, {name: name for name in output.names})
        return rows

    def state_name(self, node: flow.Node, role: str) -> str:
        return f"{type(node).__name__.lower()}-{fingerprint(node)}-{role}"

    def brought_together(self, rows: DataFrame, by: list[str]) -> DataFrame:
        """All rows of one key in one partition."""
        return rows.repartition(self.partitions, *map(quoted, by))

    def share(self, by: list[str]) -> Column:
        """Where Spark brings rows that it puts together by these columns: `HashPartitioning` works it out like this."""
        return F.pmod(F.hash(*map(quoted, by)), F.lit(self.partitions)).alias(SHARE)

    def worked_out_once(self, rows: DataFrame) -> DataFrame:
        """The same rows, evaluated once however many branches read them: Spark runs equal exchanges once.

        They stay equal only if no branch moves its own filter or choice of columns before the exchange. The condition
        keeps both above: Spark moves nothing across one that could change from row to row, and it names every column.
        """
        nulls = (F.col(quoted(name)).isNull() for name in rows.columns)
        return self._exchanged(rows).where(reduce(Column.__or__, nulls, F.spark_partition_id() >= F.lit(0)))

    def _exchanged(self, rows: DataFrame) -> DataFrame:
        """Rows through an exchange that leaves them in their partition: a view may count on where they are."""
        numbered = rows.withColumn(_AT, F.pmod(F.spark_partition_id(), F.lit(self.partitions)))
        return numbered.repartitionById(self.partitions, F.col(_AT)).drop(_AT)

    def spread(self, rows: DataFrame) -> DataFrame:
        """Rows in as many partitions as states have, by nothing that anybody would look for."""
        return rows.repartition(self.partitions, row_hash(rows, rows.columns))


@dataclass(frozen=True, slots=True)
class Needs:
    """What later nodes need of earlier ones: the columns of sources, and which nodes must carry the rows' origin."""

    columns: dict[flow.Node, frozenset[str]]
    origin: frozenset[flow.Node]


def _state_of(name: str, node: flow.Node, number: int = 0) -> StateOf:
    if isinstance(node, flow.Distinct) and node.late is not None:
        return StateOf(name, node, clock_of(node), number, node.late.delay)
    delay = max(map(delayed_by, timed_inputs(node)), default=0)
    if isinstance(node, flow.Aggregate) and node.windowing and isinstance(node.windowing.window, flow.Sliding):
        delay += 1  # the end is part of such a window: it is over a moment later
    return StateOf(name, node, clock_of(node), number, delay)


def clock_of(node: flow.Node) -> tuple[str, ...]:
    """The topics whose watermark is the time of a node: its own, or those of what it goes by."""
    return node.late.topics if isinstance(node, flow.Distinct) and node.late is not None else timed_sources(node)


def retracts_input(node: flow.Node) -> bool:
    """Whether rows that a node reads can be taken back."""
    return any(given.shape.retracts for given in flow.inputs(node))


def _given(changes: DataFrame) -> pa.Schema:
    """What an operator gets of changes."""
    return without(arrow_schema(changes.schema), SHARE)


def _in_their_place(state: str, run: InArrow) -> InArrow:
    """The operator, after a look at the rows: those of another partition's share would be added to the wrong state."""

    def checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = state_partition(assignment().partitions)
        for batch in batches:
            strangers = batch.column(SHARE).filter(pc.not_equal(batch.column(SHARE), pa.scalar(task, pa.int32())))
            if len(strangers):
                raise DeclarationError(
                    f"state {state}: task {task} got {len(strangers)} rows of others, such as {strangers[0]}",
                    hint="a function given to map must not change settings of Spark; if none does, report a bug",
                )
            yield batch.drop_columns([SHARE])

    return lambda batches: run(checked(batches))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def columns_of_rows(rows: DataFrame) -> list[str]:
    """The user's columns."""
    return [name for name in rows.columns if not name.startswith("_")]


def hidden_of_rows(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name.startswith("_")]


def hashed(rows: DataFrame, by: list[str], *more: Column) -> DataFrame:
    """Rows with the two hashes of a key."""
    first, second = key_hashes(rows, by)
    return rows.select("*", first.alias(HASH), second.alias(SECOND_HASH), *more)


def key_hashes(rows: DataFrame, by: list[str]) -> tuple[Column, Column]:
    columns = hashable(rows, by)
    return F.xxhash64(*columns), F.xxhash64(F.lit(SALT), *columns)


def row_hash(rows: DataFrame, names: list[str]) -> Column:
    return F.xxhash64(F.lit(SALT), *hashable(rows, names))


def hashable(rows: DataFrame, names: list[str]) -> list[Column]:
    """What Spark is to hash, so that rows which differ in these columns have different hashes.

    Spark passes over nulls, wherever they are, and over where a list ends: (1, null) and (null, 1) have the same hash,
    ([1], []) and ([], [1]) too. So which are null is hashed as well, and how long lists are. Of maps it is the entries.
    """
    columns = {name: F.col(quoted(name)) for name in names}
    values = [_without_holes(column, rows.schema[name].dataType) for name, column in columns.items()]
    if len(names) == 1 and isinstance(rows.schema[names[0]].dataType, AtomicType):
        return values
    marks = list(columns.values())
    return [*(_which_are_null(marks[at : at + MARKS]) for at in range(0, len(marks), MARKS)), *values]


def _which_are_null(columns: list[Column]) -> Column:
    """A bit for each column."""
    bits = (F.when(column.isNull(), F.lit(1 << at)).otherwise(F.lit(0)) for at, column in enumerate(columns))
    return reduce(Column.bitwiseOR, bits)


def _without_holes(column: Column, type_: DataType) -> Column:
    """A value in which every part has a mark beside it that says whether it is null, and every list its length."""

    def marked(part: Column, of: DataType) -> list[Column]:
        return [part.isNull(), _without_holes(part, of)]

    match type_:
        case MapType():
            entry = StructType().add("key", type_.keyType).add("value", type_.valueType)
            return _without_holes(F.map_entries(column), ArrayType(entry))
        case ArrayType():
            elements = F.transform(column, lambda element: F.struct(*marked(element, type_.elementType)))
            return F.struct(F.size(column), elements)
        case StructType():
            parts = [one for field in type_ for one in marked(column.getField(field.name), field.dataType)]
            return F.struct(*parts)
        case _:
            return column


def check_key(rows: DataFrame, names: Iterable[str], where: str) -> None:
    """Refuse keys by which Spark does not put rows together."""
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
            return any(has_map(one.dataType) for one in type_.fields)
        case _:
            return False


def in_arrow(rows: DataFrame, function: InArrow, output: pa.Schema) -> DataFrame:
    """`mapInArrow` for columns of any name: Spark's own takes a dot for a part of a struct, and no backquotes."""
    names = rows.columns
    if all(name.isidentifier() for name in names):
        return rows.mapInArrow(function, from_arrow_schema(output))

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"_{number}" for number in range(len(names)))).mapInArrow(named, from_arrow_schema(output))


def weight_of(rows: DataFrame) -> Column:
    return F.col(WEIGHT) if WEIGHT in rows.columns else F.lit(1)


def events_of(rows: DataFrame) -> Column:
    return F.col(EVENTS) if EVENTS in rows.columns else F.lit(1)


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in to_arrow_schema(schema, timezone="UTC")])


def without(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([one for one in schema if one.name not in names])
