"""Views as the tasks of an epoch write them: the changes of a view become runs, sorted and merged like those of state.

A *keyed* view replaces rows by their key, a *counted* one adds up how often each row is there, and an *appended* one
only grows. Whatever a task writes is a new file; the driver's commit names it, or it is garbage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.datasource.topic import plain_errors
from penstock.engine.ledger.records import VIEWS_DIRECTORY, Growth
from penstock.engine.operators.contract import EVENTS, WEIGHT, keyed
from penstock.engine.run.tasks import Assignment, InArrow, assignment, collected, state_partition
from penstock.engine.state.arrangement import GROWTH, Adding, Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.hashing import hash_rows
from penstock.engine.state.rows import Numbers, hashes, integers, taken, with_columns, without_columns
from penstock.engine.state.run import Run, RunFile, open_batches, open_runs, store_batches, store_run
from penstock.engine.state.search import by_key, firsts
from penstock.log.files import disk_errors

_REPORTED: dict[str, pa.DataType] = {"output": pa.string(), "partition": pa.int32(), "report": pa.string()}
REPORTED = pa.schema(_REPORTED)
# Appended runs of this size are not merged any further: reading a few of them costs no more than reading one.
MOST_APPENDED_BYTES = 128 * 1024 * 1024
# So many rows of small batches become one batch when appended runs are merged.
MERGED_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """What is kept of one view. `schema` has its columns, `key` those that identify a row of a keyed one."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...] | None
    growth: Growth

    @property
    def kind(self) -> Replacing | Adding:
        return Replacing() if self.growth == "keyed" else Adding({COUNT: "sum"})

    @property
    def changes_schema(self) -> pa.Schema:
        weight = [] if self.growth == "appended" else [pa.field(WEIGHT, pa.int64())]
        return pa.schema([*self.schema, *weight])

    @property
    def run_schema(self) -> pa.Schema:
        mark = pa.field(GONE, pa.bool_()) if self.growth == "keyed" else pa.field(COUNT, pa.int64())
        return pa.schema([*self.schema, mark, pa.field(ORDER, pa.int64()), pa.field(ID, pa.int64())])

    def run_of(self, changes: pa.RecordBatch) -> Run:
        """An epoch's changes, with `_weight`, as a run."""
        rows = without_columns(changes, WEIGHT)
        key = self.schema.names if self.key is None else self.key
        both = hash_rows([rows.column(name) for name in key])
        order, id_ = (np.broadcast_to(one, changes.num_rows).view(np.uint64) for one in both)  # one, without a key
        rows = keyed(rows, order, id_)
        weights = integers(changes, WEIGHT)
        run = _newest_rows(rows, weights) if self.growth == "keyed" else _counted_rows(rows, weights)
        return Run(run.select(self.run_schema.names))


def _newest_rows(rows: pa.RecordBatch, weights: Numbers) -> pa.RecordBatch:
    """Of each key the row that was added; where none was, the one that was taken away, as gone."""
    order, id_ = hashes(rows, ORDER), hashes(rows, ID)
    at = by_key(order, id_, (weights > 0).astype(np.int64))
    begins = firsts(order[at], id_[at])
    last = at[np.append(begins[1:], True)[: len(begins)]]
    return with_columns(taken(rows, last), {GONE: weights[last] < 0})


def _counted_rows(rows: pa.RecordBatch, weights: Numbers) -> pa.RecordBatch:
    """Each different row once, with how many of it have come or gone."""
    order, id_ = hashes(rows, ORDER), hashes(rows, ID)
    at = by_key(order, id_)
    begins = np.flatnonzero(firsts(order[at], id_[at]))
    counts = np.add.reduceat(weights[at], begins) if len(begins) else weights[:0]
    alive = counts != 0
    return with_columns(taken(rows, at[begins[alive]]), {COUNT: counts[alive]})


def keep_view(view: ViewSpec) -> InArrow:
    """A function for `mapInArrow` that takes the changes of a view, writes files, and gives one row: its report.

    The changes have the columns of the view, `_weight` unless the view is an appended one, and perhaps `_events`.
    """
    write = _append if view.growth == "appended" else _merge

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"view '{view.name}'"):
            epoch = assignment()
            counted = _CountedChanges(view, batches)
            report = write(view, epoch, counted)
            yield report_row(view.name, state_partition(epoch.partitions), {**report, "events": counted.events})

    return run


def report_row(output: str, partition: int, report: dict[str, object]) -> pa.RecordBatch:
    row = {"output": output, "partition": partition, "report": json.dumps(report)}
    return pa.RecordBatch.from_pylist([row], schema=REPORTED)


class _CountedChanges:
    """The changes of a view, with the types of its columns, while the events they stand for are counted."""

    def __init__(self, view: ViewSpec, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = view.changes_schema
        self._batches = batches
        self.events = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows:
                self.events += events_in(batch)
                # Spark says of parts of lists and structs whether they may be null: that is not part of a type here.
                yield batch.select(self._schema.names).cast(self._schema)


def events_in(batch: pa.RecordBatch) -> int:
    """How many events the rows are, where they have met no state."""
    if EVENTS in batch.schema.names:
        return int(pc.sum(batch.column(EVENTS)).as_py())
    if WEIGHT not in batch.schema.names:
        return int(batch.num_rows)
    return int(pc.sum(pc.max_element_wise(batch.column(WEIGHT), 0)).as_py())


def _merge(view: ViewSpec, epoch: Assignment, batches: _CountedChanges) -> dict[str, object]:
    """Add the changes to the runs of this task's partition; which runs it has now, and a file with the changes."""
    partition = state_partition(epoch.partitions)
    files = epoch.views.get(view.name, {}).get(partition, ())
    changes = collected(iter(batches), view.changes_schema)
    kept = [file.to_document() for file in files]
    if not changes.num_rows:
        return {"runs": kept}
    folder = f"{VIEWS_DIRECTORY}/{view.name}/{partition}"
    report: dict[str, object] = {}
    if epoch.keep_changes:
        report["changes"] = [store_batches(epoch.directory, folder, epoch.prefix, [changes]).to_document()]
    runs = open_runs(epoch.directory, folder, files)
    arrangement = Arrangement(view.kind, view.run_schema, runs).with_run(view.run_of(changes))
    if len(arrangement.runs) == len(files):
        return {**report, "runs": kept}  # what came has gone again
    count, run = arrangement.settled(_lasts, 0)
    if run.rows:
        kept = [*kept[:count], store_run(epoch.directory, folder, epoch.prefix, run).to_document()]
    return {**report, "runs": kept if run.rows else kept[:count]}


def _lasts(rows: pa.RecordBatch, whole: bool) -> None:
    """Rows of views do not expire."""


def _append(view: ViewSpec, epoch: Assignment, batches: _CountedChanges) -> dict[str, object]:
    """Write the rows to a file of their own, as they come, and merge earlier small files into one.

    Several tasks may have the same partition. So a task says what it added, and which of the earlier files became one,
    for which it takes only those that were there before.
    """
    folder = f"{VIEWS_DIRECTORY}/{view.name}/{state_partition(epoch.partitions)}"
    report: dict[str, object] = {}
    rows = iter(batches)
    if (first := next(rows, None)) is not None:
        added = store_batches(epoch.directory, folder, epoch.prefix, chain([first], rows))
        report["added"] = added.to_document()
    files = epoch.views.get(view.name, {}).get(state_partition(epoch.partitions), ())
    if (count := _small_files(files)) > 1:
        small = files[len(files) - count :]
        merged = store_batches(epoch.directory, folder, epoch.prefix, _merged_batches(epoch.directory, small))
        report["merged"] = {"files": [file.path for file in small], "into": merged.to_document()}
    return report


def _small_files(files: Sequence[RunFile]) -> int:
    """How many of the newest files should become one; 0 or 1 for none."""
    count, size = 0, 0
    for file in reversed(files):
        if (count and file.bytes > GROWTH * size) or size + file.bytes > MOST_APPENDED_BYTES:
            break
        size += file.bytes
        count += 1
    return count


def _merged_batches(directory: Path, files: Sequence[RunFile]) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    for batch in (batch for file in files for batch in open_batches(directory, file)):
        pending.append(batch)
        if sum(one.num_rows for one in pending) >= MERGED_ROWS:
            yield pa.concat_batches(pending)  # type: ignore[attr-defined]  # missing from the stubs
            pending = []
    if pending:
        yield pa.concat_batches(pending)  # type: ignore[attr-defined]
