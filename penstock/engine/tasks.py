"""What runs in Spark's tasks: each takes its rows, its state and the time, and leaves files and a report.

The plan of an app is made once; what differs between epochs reaches the tasks as a local property that names a file.
"""

from __future__ import annotations

import gc
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.engine.operators.contract import Operator, Times
from penstock.engine.source_topic import plain_errors
from penstock.engine.state.arrangement import Arrangement, last_expiry
from penstock.engine.state.rows import stacked
from penstock.engine.state.run import RunFile, open_runs, reachable, store_run
from penstock.log.files import disk_errors

PROPERTY = "penstock.epoch"
# Rows go back to Spark in pieces of this many, to bound what Python and the JVM hold at a time.
OUTPUT_ROWS = 64 * 1024

InArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one epoch tells its tasks."""

    directory: Path  # of the app
    epoch: int
    token: int
    staging: str  # where reports and staged rows go, in the app's folder
    partitions: int
    times: Mapping[str, Times]  # by state
    states: Mapping[str, Mapping[int, tuple[RunFile, ...]]]
    sources: Mapping[str, Any]

    @property
    def prefix(self) -> str:
        """How the names of this epoch's files begin."""
        return f"{self.epoch:012d}-{self.token}"


def assignment() -> Assignment:
    """Of the epoch this task belongs to."""
    _freeze_modules()
    context = TaskContext.get()
    assert context is not None
    path = context.getLocalProperty(PROPERTY)
    assert path is not None
    return _load(path)


@lru_cache(maxsize=1)
def _freeze_modules() -> None:
    """Take what a worker process has imported out of the garbage collector's sight, once.

    Spark collects garbage after every task; going through all modules again takes longer than a small task itself.
    """
    pa.array([0])  # imports pandas, if it is there
    gc.freeze()


@lru_cache(maxsize=4)
def _load(path: str) -> Assignment:
    document = json.loads(Path(path).read_text())
    return Assignment(
        directory=Path(document["directory"]),
        epoch=document["epoch"],
        token=document["token"],
        staging=document["staging"],
        partitions=document["partitions"],
        times={state: Times(*both) for state, both in document["times"].items()},
        states={
            state: {int(number): tuple(map(RunFile.from_document, files)) for number, files in partitions.items()}
            for state, partitions in document["states"].items()
        },
        sources=document["sources"],
    )


def state_partition(partitions: int) -> int:
    """Which state partition this task has.

    Spark counts the tasks of a stage through all branches of a union; every branch has a multiple of `partitions`.
    """
    context = TaskContext.get()
    assert context is not None
    return context.partitionId() % partitions


def stateful(operator: Operator, input_schema: pa.Schema, output_schema: pa.Schema) -> InArrow:
    """An operator as a function for `mapInArrow`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"state {operator.state}"):
            changes = collected(batches, input_schema)
            epoch = assignment()
            partition = state_partition(epoch.partitions)
            times = epoch.times[operator.state]
            files = reachable(epoch.states.get(operator.state, {}).get(partition, ()), times.before)
            runs = open_runs(epoch.directory, _folder(operator, partition), files)
            arrangement = Arrangement(operator.kind, operator.schema(changes.schema), runs)
            outcome = operator.step(changes, arrangement, times)
            left = _stored(epoch, operator, partition, files, arrangement.with_run(outcome.run))
            report(epoch, {"state": operator.state, "partition": partition, "counts": outcome.counts, "runs": left})
            for batch in outcome.output:
                yield from pieces(batch.select(output_schema.names).cast(output_schema))

    return run


def _folder(operator: Operator, partition: int) -> str:
    """Where the runs of a state partition lie, in the app's folder."""
    return f"state/{operator.state}/{partition}"


def _stored(
    epoch: Assignment, operator: Operator, partition: int, files: Sequence[RunFile], arrangement: Arrangement
) -> list[dict[str, object]]:
    """The run files of this state partition after the epoch: the new run is stored, merged with such as are small."""
    kept = [file.to_document() for file in files]
    if len(arrangement.runs) == len(files):
        return kept  # the epoch has changed nothing
    count, run = arrangement.settled(operator.expires, epoch.times[operator.state].after)
    if not run.rows:
        return kept[:count]
    folder = _folder(operator, partition)
    stored = store_run(epoch.directory, folder, epoch.prefix, run, last_expiry(operator.expires, run))
    return [*kept[:count], stored.to_document()]


def report(epoch: Assignment, document: Mapping[str, object]) -> None:
    """Leave a report for the driver. A task that runs twice leaves two, which say the same."""
    folder = epoch.directory / epoch.staging
    name = secrets.token_hex(8)
    draft = folder / f"{name}.tmp"
    draft.write_text(json.dumps(document))
    draft.rename(folder / f"{name}.report.json")


def collected(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All rows of a task as one batch."""
    whole = stacked(list(batches), schema)
    return pa.RecordBatch.from_arrays(whole.columns, names=whole.schema.names)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, OUTPUT_ROWS):
        yield batch.slice(start, OUTPUT_ROWS)
