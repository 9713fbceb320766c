"""How the tasks of an epoch write views: the changes of a view become runs, sorted and merged like those of states.

A *keyed* view replaces rows by their key, a *counted* one adds up the counts of rows, and an *appended* one only grows.
A task only writes new files. The driver's commit names them; otherwise they are garbage.
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
from penstock.engine.operators.contract import EVENTS, WEIGHT, with_run_key
from penstock.engine.run.tasks import Assignment, MapInArrow, assignment, collect_batches, state_partition
from penstock.engine.state.arrangement import Adding, Arrangement, Replacing, newest_to_merge
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.hashing import hash_rows
from penstock.engine.state.rows import Numbers, hashes, integers, take_rows, with_columns, without_columns
from penstock.engine.state.run import Run, RunFile, open_batches, open_runs, store_batches, store_run
from penstock.engine.state.search import argsort_by_key, firsts, lasts
from penstock.storage.files import disk_errors

_REPORT_FIELDS: dict[str, pa.DataType] = {"output": pa.string(), "partition": pa.int32(), "report": pa.string()}
REPORT_SCHEMA = pa.schema(_REPORT_FIELDS)
# Appended files are not merged beyond this size: reading a few of them costs no more than reading one.
MOST_APPENDED_BYTES = 128 * 1024 * 1024
# When appended files are merged, small batches are joined into batches of this many rows.
MERGED_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """One view. `schema` has its columns, `key` those that identify a row of a keyed view."""

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

    def to_run(self, changes: pa.RecordBatch) -> Run:
        """The changes of an epoch, which have `_weight`, as a run."""
        rows = without_columns(changes, WEIGHT)
        key = self.schema.names if self.key is None else self.key
        key_hashes = hash_rows([rows.column(name) for name in key])
        order, id_ = (
            np.broadcast_to(hashes_, changes.num_rows).view(np.uint64) for hashes_ in key_hashes
        )  # one, without a key
        rows = with_run_key(rows, order, id_)
        weights = integers(changes, WEIGHT)
        run = _newest_rows(rows, weights) if self.growth == "keyed" else _counted_rows(rows, weights)
        return Run(run.select(self.run_schema.names))


def _newest_rows(rows: pa.RecordBatch, weights: Numbers) -> pa.RecordBatch:
    """For each key the row that was added; if none was, the one that was retracted, as a deletion."""
    order, id_ = hashes(rows, ORDER), hashes(rows, ID)
    at = argsort_by_key(order, id_, (weights > 0).astype(np.int64))
    begins = firsts(order[at], id_[at])
    last = at[lasts(begins)]
    return with_columns(take_rows(rows, last), {GONE: weights[last] < 0})


def _counted_rows(rows: pa.RecordBatch, weights: Numbers) -> pa.RecordBatch:
    """Each different row once, with the sum of its weights."""
    order, id_ = hashes(rows, ORDER), hashes(rows, ID)
    at = argsort_by_key(order, id_)
    begins = np.flatnonzero(firsts(order[at], id_[at]))
    counts = np.add.reduceat(weights[at], begins) if len(begins) else weights[:0]
    alive = counts != 0
    return with_columns(take_rows(rows, at[begins[alive]]), {COUNT: counts[alive]})


def view_writer(view: ViewSpec) -> MapInArrow:
    """A function for `mapInArrow` that writes the changes of a view to files, and emits one row: its report.

    The changes have the columns of the view, `_weight` unless the view is an appended one, and perhaps `_events`.
    """
    write = _append_rows if view.growth == "appended" else _merge_changes

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors(), disk_errors(f"view '{view.name}'"):
            epoch = assignment()
            changes = _CountedChanges(view, batches)
            report = write(view, epoch, changes)
            yield report_row(view.name, state_partition(epoch.partitions), {**report, "events": changes.events})

    return run


def report_row(output: str, partition: int, report: dict[str, object]) -> pa.RecordBatch:
    row = {"output": output, "partition": partition, "report": json.dumps(report)}
    return pa.RecordBatch.from_pylist([row], schema=REPORT_SCHEMA)


class _CountedChanges:
    """The changes of a view, cast to the types of its columns; counts their events while they are read."""

    def __init__(self, view: ViewSpec, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = view.changes_schema
        self._batches = batches
        self.events = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows:
                self.events += events_in(batch)
                # Spark also says which parts of lists and structs may be null. Stored types do not.
                yield batch.select(self._schema.names).cast(self._schema)


def events_in(batch: pa.RecordBatch) -> int:
    """How many events the rows are, if they have not passed through a state."""
    if EVENTS in batch.schema.names:
        return int(pc.sum(batch.column(EVENTS)).as_py())
    if WEIGHT not in batch.schema.names:
        return int(batch.num_rows)
    return int(pc.sum(pc.max_element_wise(batch.column(WEIGHT), 0)).as_py())


def _merge_changes(view: ViewSpec, epoch: Assignment, batches: _CountedChanges) -> dict[str, object]:
    """Merge the changes into the runs of this task's partition. The report has the runs, and a file of changes."""
    partition = state_partition(epoch.partitions)
    files = epoch.views.get(view.name, {}).get(partition, ())
    changes = collect_batches(iter(batches), view.changes_schema)
    documents = [file.to_document() for file in files]
    if not changes.num_rows:
        return {"runs": documents}
    folder = f"{VIEWS_DIRECTORY}/{view.name}/{partition}"
    report: dict[str, object] = {}
    if epoch.keep_changes:
        report["changes"] = [store_batches(epoch.directory, folder, epoch.prefix, [changes]).to_document()]
    runs = open_runs(epoch.directory, folder, files)
    arrangement = Arrangement(view.kind, view.run_schema, runs).with_run(view.to_run(changes))
    if len(arrangement.runs) == len(files):
        return {**report, "runs": documents}  # the changes cancel out
    count, run = arrangement.merge_small_runs()
    if run.rows:
        documents = [*documents[:count], store_run(epoch.directory, folder, epoch.prefix, run).to_document()]
    return {**report, "runs": documents if run.rows else documents[:count]}


def _append_rows(view: ViewSpec, epoch: Assignment, batches: _CountedChanges) -> dict[str, object]:
    """Write the rows to a new file as they arrive, and merge small files of earlier epochs.

    Several tasks may have the same partition. So a task reports what it added, and which files it merged. It only
    merges files that existed before this epoch.
    """
    folder = f"{VIEWS_DIRECTORY}/{view.name}/{state_partition(epoch.partitions)}"
    report: dict[str, object] = {}
    rows = iter(batches)
    if (first := next(rows, None)) is not None:
        file = store_batches(epoch.directory, folder, epoch.prefix, chain([first], rows))
        report["added"] = file.to_document()
    files = epoch.views.get(view.name, {}).get(state_partition(epoch.partitions), ())
    sizes = ((file.bytes, file.bytes) for file in reversed(files))
    if (count := newest_to_merge(sizes, MOST_APPENDED_BYTES)) > 1:
        small = files[len(files) - count :]
        merged_file = store_batches(epoch.directory, folder, epoch.prefix, _merged_batches(epoch.directory, small))
        report["merged"] = {"files": [file.path for file in small], "into": merged_file.to_document()}
    return report


def _merged_batches(directory: Path, files: Sequence[RunFile]) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    for batch in (batch for file in files for batch in open_batches(directory, file)):
        pending.append(batch)
        if sum(pending_batch.num_rows for pending_batch in pending) >= MERGED_ROWS:
            yield pa.concat_batches(pending)  # type: ignore[attr-defined]  # missing from the stubs
            pending = []
    if pending:
        yield pa.concat_batches(pending)  # type: ignore[attr-defined]
