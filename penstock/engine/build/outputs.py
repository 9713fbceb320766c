"""The ends of the graph: tasks stage the changes of each view and sink as Arrow files, and tell the driver where."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engine.build.graph import Graph, Operation, arrow_schema, columns_of_rows, in_arrow, quoted, without
from penstock.engine.datasource.topic import plain_errors
from penstock.engine.operators.contract import EVENTS, WEIGHT
from penstock.engine.run.tasks import InArrow, assignment
from penstock.flow import plan as flow
from penstock.log.files import disk_errors

_STAGED: dict[str, pa.DataType] = {"output": pa.string(), "path": pa.string(), "events": pa.int64()}
STAGED = pa.schema(_STAGED)


def output(graph: Graph, rows: DataFrame, end: flow.Output) -> tuple[DataFrame, pa.Schema]:
    """A DataFrame that stages the rows when it is run, and their columns."""
    names = [quoted(name) for name in columns_of_rows(rows)]
    weight = F.col(WEIGHT) if WEIGHT in rows.columns else F.lit(1).cast("long").alias(WEIGHT)
    counted = [EVENTS] if EVENTS in rows.columns else []
    changes = rows.select(*names, weight, *counted)
    schema = without(arrow_schema(changes.schema), EVENTS)
    stage = _staging(end.name, schema, "sink" if isinstance(end, flow.Sink) else "view")
    columns = pa.schema([one for one in schema if one.name != WEIGHT])
    operation = graph.operations.get(rows)
    if operation is None:
        return in_arrow(changes, stage, STAGED), columns
    # What an operator gives is staged by the same task: Spark would hand every row over twice more, and change nothing.
    return in_arrow(operation.changes, _staged_at_once(operation, stage, schema), STAGED), columns


def _staged_at_once(operation: Operation, stage: InArrow, schema: pa.Schema) -> InArrow:
    run, given = operation.run, [operation.columns[name] for name in schema.names]

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(given).rename_columns(schema.names).cast(schema)

    return lambda batches: stage(named(run(batches)))


def _staging(name: str, schema: pa.Schema, kind: str) -> InArrow:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"{kind} '{name}'"):
            epoch = assignment()
            path = f"{epoch.staging}/{name}-{secrets.token_hex(8)}.arrow"
            events = written = 0
            with pa.OSFile(str(epoch.directory / path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    if not batch.num_rows:
                        continue
                    events += _events(batch)
                    written += batch.num_rows
                    writer.write_batch(pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema))
            if written:
                yield pa.RecordBatch.from_pylist([{"output": name, "path": path, "events": events}], schema=STAGED)

    return stage


def _events(batch: pa.RecordBatch) -> int:
    """How many events the rows are, where they have met no state."""
    if EVENTS in batch.schema.names:
        return int(pc.sum(batch.column(EVENTS)).as_py())
    return int(pc.sum(pc.max_element_wise(batch.column(WEIGHT), 0)).as_py())
