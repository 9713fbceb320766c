"""The ends of the graph: tasks write the runs of each view, stage the rows of each sink, and report to the driver."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.fetch import Fetch
from penstock.engine.build.graph import (
    ORIGIN,
    Graph,
    Operation,
    arrow_schema,
    columns_of_rows,
    in_arrow,
    quoted,
    row_hash,
    without,
)
from penstock.engine.build.needs import STATEFUL
from penstock.engine.datasource.topic import plain_errors
from penstock.engine.ledger.records import Growth
from penstock.engine.operators.contract import EVENTS, WEIGHT
from penstock.engine.run.fetch import with_fetched
from penstock.engine.run.tasks import InArrow, assignment, state_partition
from penstock.engine.run.views import REPORTED, ViewSpec, events_in, keep_view, report_row
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.log.files import disk_errors
from penstock.log.schema import parse_schema


def output(graph: Graph, rows: DataFrame, end: flow.Output, fetch: Fetch | None = None) -> tuple[DataFrame, pa.Schema]:
    """A DataFrame that writes the rows when it is run and gives the reports of its tasks; and the rows' columns.

    With `fetch`, the rows have the columns that are computed, and the others are fetched by the tasks.
    """
    if fetch is not None:
        assert isinstance(end, flow.View)
        return _write_fetched(rows, end, fetch)
    if not isinstance(end, flow.View):
        changes = _changes(rows, weighted=True)
        schema = without(arrow_schema(changes.schema), EVENTS)
        return _write_rows(graph, rows, changes, schema, _stage(end.name, schema)), without(schema, WEIGHT)
    growth = growth_of(end.node.shape)
    placed = rows if growth == "appended" or keeps_place(end.node) else _place_rows(graph, rows, end.node.shape.key)
    changes = _changes(placed, weighted=growth != "appended")
    schema = without(arrow_schema(changes.schema), EVENTS)
    columns = _kept_columns(end, without(schema, WEIGHT))
    view = ViewSpec(end.name, columns, end.node.shape.key, growth)
    return _write_rows(graph, placed, changes, schema, keep_view(view)), columns


def _write_fetched(rows: DataFrame, view: flow.View, fetch: Fetch) -> tuple[DataFrame, pa.Schema]:
    computed = rows.select(*map(quoted, fetch.computed), *ORIGIN)
    types = {field.name: field.type for field in arrow_schema(computed.schema)}
    stored = parse_schema(fetch.topic.schema)
    types |= {name: stored.field(source).type for name, source in fetch.columns.items()}
    assert view.node.shape.columns is not None
    columns = _kept_columns(view, pa.schema([pa.field(name, types[name]) for name in view.node.shape.columns]))
    write = keep_view(ViewSpec(view.name, columns, None, "appended"))
    return in_arrow(computed, with_fetched(fetch.topic.name, fetch.columns, write), REPORTED), columns


def _kept_columns(view: flow.View, schema: pa.Schema) -> pa.Schema:
    """The columns of a view in the normal form of all stored columns; refused if they cannot be kept."""
    try:
        return pa.schema([field.with_nullable(True) for field in parse_schema(schema)])
    except DeclarationError as error:
        raise DeclarationError(f"{view.place}: view '{view.name}': {error.message}", hint=error.hint) from None


def growth_of(shape: flow.Shape) -> Growth:
    """How the rows of a view add up."""
    if shape.key is not None:
        return "keyed"
    return "counted" if shape.retracts else "appended"


def keeps_place(node: flow.Node) -> bool:
    """Whether what becomes of a row is in the same task as the row, in every epoch: behind a state, without a detour.

    The partition of a view is then that of the state before it, which depends on the node alone.
    """
    while isinstance(node, flow.Where | flow.Select):
        node = node.input
    return isinstance(node, STATEFUL)


def _place_rows(graph: Graph, rows: DataFrame, key: tuple[str, ...] | None) -> DataFrame:
    """Rows where all that has their key is, or all that is equal to them, in every epoch."""
    if key == ():
        return rows.repartitionById(graph.partitions, F.lit(0))
    return rows.repartition(graph.partitions, row_hash(rows, list(key or columns_of_rows(rows))))


def _changes(rows: DataFrame, *, weighted: bool) -> DataFrame:
    names = [quoted(name) for name in columns_of_rows(rows)]
    weight = []
    if weighted:
        weight = [F.col(WEIGHT) if WEIGHT in rows.columns else F.lit(1).cast("long").alias(WEIGHT)]
    return rows.select(*names, *weight, *([EVENTS] if EVENTS in rows.columns else []))


def _write_rows(graph: Graph, rows: DataFrame, changes: DataFrame, schema: pa.Schema, write: InArrow) -> DataFrame:
    operation = graph.operations.get(rows)
    if operation is None:
        return in_arrow(changes, write, REPORTED)
    # What an operator gives is written by the same task: Spark would hand every row over twice more, unchanged.
    return in_arrow(operation.changes, _write_at_once(operation, write, schema), REPORTED)


def _write_at_once(operation: Operation, write: InArrow, schema: pa.Schema) -> InArrow:
    run, given = operation.run, [operation.columns[name] for name in schema.names]

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(given).rename_columns(schema.names).cast(schema)

    return lambda batches: write(named(run(batches)))


def _stage(name: str, schema: pa.Schema) -> InArrow:
    """Leave the rows of a sink in a file, for the driver to publish."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"sink '{name}'"):
            epoch = assignment()
            path = f"{epoch.staging}/{name}-{secrets.token_hex(8)}.arrow"
            events = written = 0
            with pa.OSFile(str(epoch.directory / path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    if batch.num_rows:
                        events += events_in(batch)
                        written += batch.num_rows
                        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema))
            if written:
                yield report_row(name, state_partition(epoch.partitions), {"path": path, "events": events})

    return stage
