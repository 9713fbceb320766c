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
    map_in_arrow,
    quote,
    row_hash,
    user_columns,
    without_fields,
)
from penstock.engine.build.needs import STATEFUL
from penstock.engine.datasource.topic import plain_errors
from penstock.engine.ledger.records import Growth
from penstock.engine.operators.contract import EVENTS, WEIGHT
from penstock.engine.run.fetch import with_fetched
from penstock.engine.run.tasks import MapInArrow, assignment, state_partition
from penstock.engine.run.views import REPORT_SCHEMA, ViewSpec, events_in, report_row, view_writer
from penstock.errors import DeclarationError
from penstock.flow import plan as flow
from penstock.schema.arrow import parse_schema
from penstock.storage.files import disk_errors


def build_output(
    graph: Graph, rows: DataFrame, output: flow.Output, fetch: Fetch | None = None
) -> tuple[DataFrame, pa.Schema]:
    """A DataFrame that writes the rows when it is run, and whose rows are the reports of its tasks; and their columns.

    With `fetch`, the rows have the computed columns only, and the tasks fetch the others.
    """
    if fetch is not None:
        assert isinstance(output, flow.View)
        return _build_fetching_view(rows, output, fetch)
    if not isinstance(output, flow.View):
        changes = _changes(rows, with_weight=True)
        schema = without_fields(arrow_schema(changes.schema), EVENTS)
        return _build_writer(graph, rows, changes, schema, _stager(output.name, schema)), without_fields(schema, WEIGHT)
    growth = growth_of(output.node.shape)
    if growth != "appended" and not keeps_partition(output.node):
        rows = _repartition(graph, rows, output.node.shape.key)
    changes = _changes(rows, with_weight=growth != "appended")
    schema = without_fields(arrow_schema(changes.schema), EVENTS)
    columns = _stored_columns(output, without_fields(schema, WEIGHT))
    view = ViewSpec(output.name, columns, output.node.shape.key, growth)
    return _build_writer(graph, rows, changes, schema, view_writer(view)), columns


def _build_fetching_view(rows: DataFrame, view: flow.View, fetch: Fetch) -> tuple[DataFrame, pa.Schema]:
    computed_rows = rows.select(*map(quote, fetch.computed), *ORIGIN)
    types = {field.name: field.type for field in arrow_schema(computed_rows.schema)}
    topic_schema = parse_schema(fetch.topic.schema)
    types |= {name: topic_schema.field(source).type for name, source in fetch.columns.items()}
    assert view.node.shape.columns is not None
    columns = _stored_columns(view, pa.schema([pa.field(name, types[name]) for name in view.node.shape.columns]))
    write = view_writer(ViewSpec(view.name, columns, None, "appended"))
    return map_in_arrow(computed_rows, with_fetched(fetch.topic.name, fetch.columns, write), REPORT_SCHEMA), columns


def _stored_columns(view: flow.View, schema: pa.Schema) -> pa.Schema:
    """The columns of a view with the normalised types of stored columns. Refuses types that cannot be stored."""
    try:
        return pa.schema([field.with_nullable(True) for field in parse_schema(schema)])
    except DeclarationError as error:
        raise DeclarationError(f"{view.location}: view '{view.name}': {error.message}", hint=error.hint) from None


def growth_of(shape: flow.Shape) -> Growth:
    """How the rows of a view add up."""
    if shape.key is not None:
        return "keyed"
    return "counted" if shape.retracts else "appended"


def keeps_partition(node: flow.Node) -> bool:
    """Whether the rows of a node stay in the state partition of the state right before it, in every epoch.

    The partition of a view is then that of the state, which depends on the node alone.
    """
    while isinstance(node, flow.Where | flow.Select):
        node = node.input
    return isinstance(node, STATEFUL)


def _repartition(graph: Graph, rows: DataFrame, key: tuple[str, ...] | None) -> DataFrame:
    """Move rows to a partition that depends on their key only, or without a key on all their columns."""
    if key == ():
        return rows.repartitionById(graph.partitions, F.lit(0))
    return rows.repartition(graph.partitions, row_hash(rows, list(key or user_columns(rows))))


def _changes(rows: DataFrame, *, with_weight: bool) -> DataFrame:
    names = [quote(name) for name in user_columns(rows)]
    weight = []
    if with_weight:
        weight = [F.col(WEIGHT) if WEIGHT in rows.columns else F.lit(1).cast("long").alias(WEIGHT)]
    return rows.select(*names, *weight, *([EVENTS] if EVENTS in rows.columns else []))


def _build_writer(graph: Graph, rows: DataFrame, changes: DataFrame, schema: pa.Schema, write: MapInArrow) -> DataFrame:
    operation = graph.operations.get(rows)
    if operation is None:
        return map_in_arrow(changes, write, REPORT_SCHEMA)
    # The operator's task writes its rows itself: otherwise Spark would pass every row on twice more, unchanged.
    return map_in_arrow(operation.changes, _write_in_operator_task(operation, write, schema), REPORT_SCHEMA)


def _write_in_operator_task(operation: Operation, write: MapInArrow, schema: pa.Schema) -> MapInArrow:
    run, operator_columns = operation.run, [operation.columns[name] for name in schema.names]

    def rename_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(operator_columns).rename_columns(schema.names).cast(schema)

    return lambda batches: write(rename_columns(run(batches)))


def _stager(name: str, schema: pa.Schema) -> MapInArrow:
    """A function for `mapInArrow` that stages the rows of a sink in a file, for the driver to publish."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"sink '{name}'"):
            epoch = assignment()
            path = f"{epoch.staging}/{name}-{secrets.token_hex(8)}.arrow"
            events = row_count = 0
            with pa.OSFile(str(epoch.directory / path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    if batch.num_rows:
                        events += events_in(batch)
                        row_count += batch.num_rows
                        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema))
            if row_count:
                yield report_row(name, state_partition(epoch.partitions), {"path": path, "events": events})

    return stage
