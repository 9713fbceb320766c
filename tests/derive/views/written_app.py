"""An app without Spark: writes the runs of views, and commits them, as the tasks of an epoch and the epoch do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.ledger.garbage import Garbage
from penstock.engine.ledger.ledger import open_ledger
from penstock.engine.ledger.records import (
    Account,
    BackfillRecord,
    Commit,
    EpochChanges,
    EpochPlan,
    Growth,
    ReplacedOutputs,
    StoredView,
    TrackRecord,
    ViewChangeFiles,
    padded_epoch,
)
from penstock.engine.plan.cut import Cut
from penstock.engine.state.arrangement import Adding, Arrangement, Replacing
from penstock.engine.state.columns import COUNT, GONE, ID, ORDER
from penstock.engine.state.hashing import hash_rows
from penstock.engine.state.rows import with_columns
from penstock.engine.state.run import Run, RunFile, open_run, sorted_run, store_run
from penstock.schema.arrow import parse_schema

SECOND = 1_000_000
START = 1_767_225_600 * SECOND  # 2026-01-01
CHANGE_WEIGHT = "_weight"

Rows = Sequence[Mapping[str, object]]


@dataclass
class WrittenView:
    """A view that is being written: what it is, and its runs by partition."""

    name: str
    columns: str
    key: tuple[str, ...] | None = None
    growth: Growth = "appended"
    version: str = "1"
    partitions: int = 2
    watermark: int | None = None
    runs: dict[int, tuple[RunFile, ...]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column.with_nullable(True) for column in parse_schema(self.columns)])

    @property
    def stored_view(self) -> StoredView:
        return StoredView(self.version, self.columns, self.key, self.growth, dict(self.runs), self.watermark)


class WrittenApp:
    """An app in a folder: change its views with `upsert`, `count` and `append`, then `commit` the epoch."""

    def __init__(self, directory: Path, app: str = "shop", *, keep: int = 8) -> None:
        self.directory = directory
        self.ledger = open_ledger(directory, app, state_partitions=2, created=START)
        self.ledger.take_over(1)
        self.garbage = Garbage(self.ledger, keep=keep)
        self.views: dict[str, WrittenView] = {}
        self.accounts: dict[str, Account] = {}
        self.replaced = ReplacedOutputs()
        self.backfill: BackfillRecord | None = None
        self.started = START
        self._changes: dict[str, list[RunFile]] = {}
        self._reset: set[str] = set()

    @property
    def epoch(self) -> int:
        """The epoch that is being written."""
        return self.ledger.last_epoch() + 1

    def declare(self, view: WrittenView) -> WrittenView:
        if view.name in self.views:
            self._reset.add(view.name)
            self._changes.pop(view.name, None)
        self.views[view.name] = view
        return view

    # -- changing -----------------------------------------------------------------------------------------------------

    def upsert(self, name: str, rows: Rows = (), gone: Rows = (), *, before: Rows = ()) -> None:
        """Replace the rows of some keys of a keyed view, and delete other keys. `before` are the rows that they had."""
        view = self.views[name]
        assert view.key is not None
        batch = pa.RecordBatch.from_pylist([*rows, *gone], view.schema)
        flags = pa.array([False] * len(rows) + [True] * len(gone))
        self._add(view, batch, list(view.key), {GONE: flags})
        self._store_changes(view, [*rows, *before], [1] * len(rows) + [-1] * len(before))

    def count(self, name: str, rows: Rows, weights: Sequence[int]) -> None:
        """Add and remove rows of a counted view; no row may be given twice."""
        view = self.views[name]
        batch = pa.RecordBatch.from_pylist(list(rows), view.schema)
        self._add(view, batch, list(view.schema.names), {COUNT: pa.array(weights, pa.int64())})
        self._store_changes(view, rows, weights)

    def append(self, name: str, rows: Rows) -> None:
        view = self.views[name]
        batch = pa.RecordBatch.from_pylist(list(rows), view.schema)
        if batch.num_rows:
            self.add_run(view, self.epoch % view.partitions, Run(batch))
        self._store_changes(view, rows, [1] * len(rows))

    def add_batch(self, name: str, batch: pa.RecordBatch, extra: Mapping[str, Any]) -> None:
        """Add the rows of a large batch, without storing changes."""
        view = self.views[name]
        columns = list(view.key) if view.key is not None else list(view.schema.names)
        self._add(view, batch, columns, extra)

    def _add(self, view: WrittenView, batch: pa.RecordBatch, by: list[str], extra: Mapping[str, Any]) -> None:
        order, id_ = hash_rows([batch.column(name) for name in by])
        whole = with_columns(batch, {ORDER: np.broadcast_to(order, batch.num_rows).copy(), **extra})
        whole = with_columns(whole, {ID: np.broadcast_to(id_, batch.num_rows).copy()})
        homes = (whole.column(ORDER).to_numpy().view(np.uint64) >> np.uint64(7)) % np.uint64(view.partitions)
        for number in range(view.partitions):
            part = whole.filter(pa.array(homes == number))
            if part.num_rows:
                self.add_run(view, number, sorted_run(part))

    def add_run(self, view: WrittenView, partition: int, run: Run) -> RunFile:
        folder = f"views/{view.name}/{partition}"
        file = store_run(self.directory, folder, f"{padded_epoch(self.epoch)}-1", run)
        view.runs[partition] = (*view.runs.get(partition, ()), file)
        return file

    def merge(self, name: str, count: int) -> None:
        """Merge the newest runs of each partition into one."""
        view = self.views[name]
        for partition, files in list(view.runs.items()):
            newest = files[-count:]
            if len(newest) < 2:
                continue
            runs = tuple(open_run(self.directory, file) for file in files)
            view.runs[partition] = files[: -len(newest)]
            if view.growth == "appended":
                merged = Run(pa.concat_batches([run.batch for run in runs[-len(newest) :]]))
            else:
                kind = Replacing() if view.growth == "keyed" else Adding({COUNT: "sum"})
                arrangement = Arrangement(kind, runs[0].batch.schema, runs)
                merged = arrangement.merge_newest(len(newest))
            if merged.rows:
                self.add_run(view, partition, merged)

    def _store_changes(self, view: WrittenView, rows: Rows, weights: Sequence[int]) -> None:
        if not rows:
            return
        batch = pa.RecordBatch.from_pylist(list(rows), view.schema)
        batch = with_columns(batch, {CHANGE_WEIGHT: pa.array(weights, pa.int64())})
        folder = f"views/{view.name}/{self.epoch % view.partitions}"
        file = store_run(self.directory, folder, f"{padded_epoch(self.epoch)}-1", Run(batch))
        self._changes.setdefault(view.name, []).append(file)

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(self, *, collect: bool = False, keep_changes: bool = True) -> int:
        """Commit what was changed as the next epoch."""
        epoch = self.epoch
        at = self.started + epoch * SECOND
        cut = Cut(epoch, at, {})
        self.ledger.write_plan(EpochPlan(epoch, 1, "live", cut, {}, {}, {}))
        stored = {name: view.stored_view for name, view in self.views.items()}
        versions = {name: view.version for name, view in self.views.items()}
        live = TrackRecord(cut, outputs=versions, views=stored, accounts=dict(self.accounts))
        changed = {
            name: ViewChangeFiles(view.version, view.columns, view.key, tuple(self._changes[name]))
            for name, view in self.views.items()
            if name in self._changes
        }
        changes = EpochChanges(epoch, at, changed, tuple(sorted(self._reset)))
        commit = Commit(epoch, 1, at, live, self.backfill, self.replaced)
        self.ledger.commit(commit, changes if keep_changes else None)
        self._changes, self._reset = {}, set()
        if collect:
            self.garbage.collect(at)
        return epoch

    def restore(self, commit: Commit) -> None:
        """Go back to the views of an earlier commit, as a restored savepoint does."""
        for name, view in commit.views.items():
            self.views[name] = replace(self.views[name], runs=dict(view.runs), version=view.version)
            self._reset.add(name)
