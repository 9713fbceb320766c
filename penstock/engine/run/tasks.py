"""What runs in Spark's tasks: each takes its rows, its state and the time, and leaves files and a report.

The plan of an app is made once; what differs between epochs reaches the tasks as a local property that names a file.
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
from penstock.engine.operators.contract import Condensing, Keeper, Operator, PairOperator, Times
from penstock.engine.state.arrangement import Arrangement, last_expiry
from penstock.engine.state.rows import stacked
from penstock.engine.state.run import Run, RunFile, open_runs, reachable, store_run
from penstock.log.files import disk_errors

PROPERTY = "penstock.epoch"
# Rows go back to Spark in pieces of this many, to bound what Python and the JVM hold at a time.
OUTPUT_ROWS = 64 * 1024
# Changes that may make no difference are looked through when there are so many.
CONDENSED_ROWS = 256 * 1024

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
    states: States
    views: States  # the runs of each view, as the epoch before left them
    keep_changes: bool  # whether the changes of views are to be kept for whoever follows them
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
            batches, left_out = _condensed(batches, operator)
            changes = collected(batches, input_schema)
            state = OpenState(operator, changes.schema)
            outcome = operator.step(changes, state.arrangement, state.times)
            counts = {**outcome.counts, "events": outcome.counts["events"] + left_out} if left_out else outcome.counts
            state.store(outcome.run, counts)
            yield from _given(outcome.output, output_schema)

    return run


def _condensed(batches: Iterator[pa.RecordBatch], operator: Operator) -> tuple[Iterator[pa.RecordBatch], int]:
    """The changes without those that make no difference, and how many events these are; by and by, as they come."""
    if not isinstance(operator, Condensing):
        return batches, 0
    pending: list[pa.RecordBatch] = []
    rows, limit, left_out = 0, CONDENSED_ROWS, 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= limit:
            condensed, less = operator.condensed(stacked(pending, batch.schema))
            pending, rows, left_out = [condensed], condensed.num_rows, left_out + less
            limit = max(CONDENSED_ROWS, 2 * rows)  # what does not get smaller is not looked at again and again
    return iter(pending), left_out


def paired(operator: PairOperator, input_schema: pa.Schema, output_schema: pa.Schema) -> InArrow:
    """An operator with two states as a function for `mapInArrow`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"state {operator.left.state}"):
            changes = collected(batches, input_schema)
            left, right = OpenState(operator.left, changes.schema), OpenState(operator.right, changes.schema)
            outcome = operator.step(changes, left.arrangement, right.arrangement, left.times)
            left.store(outcome.left, outcome.left_counts)
            right.store(outcome.right, outcome.right_counts)
            yield from _given(outcome.output, output_schema)

    return run


def _given(output: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in output:
        yield from pieces(batch.select(schema.names).cast(schema))


class OpenState:
    """A state, in the partition that this task has: as the epoch before left it, and how this one leaves it.

    `reader` names who opens the files, where it is not the one who keeps the state: they stay open under that name.
    """

    def __init__(self, keeper: Keeper, changes: pa.Schema, *, reader: str = "state") -> None:
        self._epoch = assignment()
        self._keeper = keeper
        self._partition = state_partition(self._epoch.partitions)
        self.times = self._epoch.times[keeper.state]
        files = self._epoch.states.get(keeper.state, {}).get(self._partition, ())
        self._files = reachable(files, self.times.before)
        runs = open_runs(self._epoch.directory, f"{reader}/{keeper.state}/{self._partition}", self._files)
        self.arrangement = Arrangement(keeper.kind, keeper.schema(changes), runs)

    def store(self, run: Run, counts: Mapping[str, int]) -> None:
        """Store what the epoch adds, and report which files the state has now."""
        left = self._stored(self.arrangement.with_run(run))
        report(
            self._epoch,
            {"state": self._keeper.state, "partition": self._partition, "counts": counts, "runs": left},
        )

    def _stored(self, arrangement: Arrangement) -> list[dict[str, object]]:
        """The run files after the epoch: the new run is stored, merged with such as are small."""
        kept = [file.to_document() for file in self._files]
        if len(arrangement.runs) == len(self._files):
            return kept  # the epoch has changed nothing
        expires = self._keeper.expires
        count, run = arrangement.settled(expires, self.times.after)
        if not run.rows:
            return kept[:count]
        folder = f"{STATE_DIRECTORY}/{self._keeper.state}/{self._partition}"
        stored = store_run(self._epoch.directory, folder, self._epoch.prefix, run, last_expiry(expires, run))
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
