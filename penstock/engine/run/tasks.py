"""What runs in Spark's tasks: each takes its rows, its state and the watermarks, and writes files and a report.

The DataFrame of an app is built once. What differs between epochs is in a file, the *assignment*, whose path reaches
the tasks as a local property.
"""

from __future__ import annotations

import gc
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.engine.datasource.topic import plain_errors
from penstock.engine.ledger.records import STATE_DIRECTORY, States
from penstock.engine.operators.contract import Condenses, Operator, PairOperator, StateSpec, Watermarks
from penstock.engine.state.arrangement import Arrangement, last_expiry
from penstock.engine.state.rows import concat_rows
from penstock.engine.state.run import Run, RunFile, open_runs, reachable, store_run
from penstock.storage.files import disk_errors

ASSIGNMENT_PROPERTY = "penstock.epoch"
# Rows go back to Spark in batches of this size, to bound what Python and the JVM hold at a time.
OUTPUT_ROWS = 64 * 1024
# Changes are condensed whenever there are this many.
CONDENSED_ROWS = 256 * 1024

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `DataFrame.mapInArrow`: called once in each task, with the rows of its partition."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one epoch tells its tasks: all that differs between epochs. The same for every task."""

    directory: Path  # of the app
    epoch: int
    token: int
    staging: str  # the folder for reports and staged rows, in the app's folder
    partitions: int
    watermarks: Mapping[str, Watermarks]  # by state
    states: States
    views: States  # the runs of each view, after the epoch before
    keep_changes: bool  # whether to store the changes of views for those who follow them
    sources: Mapping[str, Any]

    @property
    def prefix(self) -> str:
        """How the names of this epoch's files begin."""
        return f"{self.epoch:012d}-{self.token}"


def assignment() -> Assignment:
    """The assignment of the epoch to which this task belongs."""
    _freeze_modules()
    context = TaskContext.get()
    assert context is not None
    path = context.getLocalProperty(ASSIGNMENT_PROPERTY)
    assert path is not None
    return _load(path)


@lru_cache(maxsize=1)
def _freeze_modules() -> None:
    """Exclude what a worker process has imported from garbage collection, once.

    Spark collects garbage after every task, and going through all modules takes longer than a small task itself.
    """
    pa.array([0])  # imports pandas, if it is installed
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
        watermarks={state: Watermarks(*pair) for state, pair in document["times"].items()},
        states=_runs_of(document["states"]),
        views=_runs_of(document["views"]),
        keep_changes=document["keep_changes"],
        sources=document["sources"],
    )


def _runs_of(document: Mapping[str, Any]) -> States:
    return {
        name: {int(number): tuple(map(RunFile.from_document, files)) for number, files in partitions.items()}
        for name, partitions in document.items()
    }


def state_partition(partitions: int) -> int:
    """The state partition of this task.

    Spark numbers the tasks of a stage across all branches of a union; every branch has a multiple of `partitions`.
    """
    context = TaskContext.get()
    assert context is not None
    return context.partitionId() % partitions


def operator_task(operator: Operator, input_schema: pa.Schema, output_schema: pa.Schema) -> MapInArrow:
    """An operator as a function for `mapInArrow`. A task:

    1. collects all changes of its partition, condensed if the operator can do that;
    2. opens the runs of its state;
    3. lets the operator step;
    4. stores the new run and writes a report;
    5. emits the operator's output.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"state {operator.state}"):
            batches, dropped_events = _condense(batches, operator)
            changes = collect_batches(batches, input_schema)
            state = OpenState(operator, changes.schema)
            outcome = operator.step(changes, state.arrangement, state.watermarks)
            counts = (
                {**outcome.counts, "events": outcome.counts["events"] + dropped_events}
                if dropped_events
                else outcome.counts
            )
            state.store(outcome.run, counts)
            yield from _emit(outcome.output, output_schema)

    return run


def _condense(batches: Iterator[pa.RecordBatch], operator: Operator) -> tuple[Iterator[pa.RecordBatch], int]:
    """The changes without those that the operator does not need, and how many events were dropped.

    Changes are condensed as they arrive, so that they are never all in memory.
    """
    if not isinstance(operator, Condenses):
        return batches, 0
    pending: list[pa.RecordBatch] = []
    rows, limit, total_dropped = 0, CONDENSED_ROWS, 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= limit:
            condensed_rows, dropped_events = operator.condense(concat_rows(pending, batch.schema))
            pending, rows, total_dropped = [condensed_rows], condensed_rows.num_rows, total_dropped + dropped_events
            limit = max(CONDENSED_ROWS, 2 * rows)  # rows that cannot be dropped are not condensed again and again
    return iter(pending), total_dropped


def pair_operator_task(operator: PairOperator, input_schema: pa.Schema, output_schema: pa.Schema) -> MapInArrow:
    """An operator with two states as a function for `mapInArrow`, in the same steps."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"state {operator.left.state}"):
            changes = collect_batches(batches, input_schema)
            left, right = OpenState(operator.left, changes.schema), OpenState(operator.right, changes.schema)
            outcome = operator.step(changes, left.arrangement, right.arrangement, left.watermarks)
            left.store(outcome.left, outcome.left_counts)
            right.store(outcome.right, outcome.right_counts)
            yield from _emit(outcome.output, output_schema)

    return run


def _emit(output: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in output:
        yield from split_batch(batch.select(schema.names).cast(schema))


class OpenState:
    """A state in the partition of this task: reads it as the epoch before left it, and stores what this epoch adds.

    `reader` is the name under which the files stay open. A task that only reads the state has a name of its own.
    """

    def __init__(self, spec: StateSpec, changes: pa.Schema, *, reader: str = "state") -> None:
        self._epoch = assignment()
        self._spec = spec
        self._partition = state_partition(self._epoch.partitions)
        self.watermarks = self._epoch.watermarks[spec.state]
        files = self._epoch.states.get(spec.state, {}).get(self._partition, ())
        self._files = reachable(files, self.watermarks.before)
        runs = open_runs(self._epoch.directory, f"{reader}/{spec.state}/{self._partition}", self._files)
        self.arrangement = Arrangement(spec.kind, spec.schema(changes), runs, spec.expiry, self.watermarks.before)

    def store(self, run: Run, counts: Mapping[str, int]) -> None:
        """Store what the epoch adds, durably, and report the files that the state has now. Called once per task."""
        runs = self._store_run(self.arrangement.with_run(run))
        write_report(
            self._epoch,
            {"state": self._spec.state, "partition": self._partition, "counts": counts, "runs": runs},
        )

    def _store_run(self, arrangement: Arrangement) -> list[dict[str, object]]:
        """Store the new run, merged with small older ones: the files of the state after the epoch."""
        documents = [file.to_document() for file in self._files]
        if len(arrangement.runs) == len(self._files):
            return documents  # the epoch changes nothing
        count, run = arrangement.merge_small_runs(self.watermarks.after)
        if not run.rows:
            return documents[:count]
        folder = f"{STATE_DIRECTORY}/{self._spec.state}/{self._partition}"
        expires = last_expiry(self._spec.expiry, run)
        file = store_run(self._epoch.directory, folder, self._epoch.prefix, run, expires)
        return [*documents[:count], file.to_document()]


def write_report(epoch: Assignment, document: Mapping[str, object]) -> None:
    """Write a report for the driver. A task that runs twice writes two reports that say the same."""
    folder = epoch.directory / epoch.staging
    name = secrets.token_hex(8)
    draft = folder / f"{name}.tmp"
    draft.write_text(json.dumps(document))
    draft.rename(folder / f"{name}.report.json")


def collect_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Collect all rows of a task into one batch."""
    rows = concat_rows(list(batches), schema)
    return pa.RecordBatch.from_arrays(rows.columns, names=rows.schema.names)


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, OUTPUT_ROWS):
        yield batch.slice(start, OUTPUT_ROWS)
