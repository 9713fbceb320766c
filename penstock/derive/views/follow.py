"""Following a view: which rows each epoch added and took away, epoch by epoch, as they are committed.

The app keeps the changes of recent epochs (see `ChangeRetention`). A follower that remembers the last epoch it has seen
loses nothing and sees nothing twice. Where changes are no longer there, or mean nothing because the view was shown
anew, it is told so (ChangesLostError) and begins again: all rows of a snapshot, then the changes after its epoch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.derive.views.open_view import REBUILD, number_array
from penstock.derive.views.snapshot import unknown_view
from penstock.derive.views.values import python_values
from penstock.engine.ledger.ledger import EPOCHS_DIRECTORY, Ledger
from penstock.engine.ledger.records import ViewChangeFiles
from penstock.engine.state.run import open_batches
from penstock.errors import ChangesLostError, DamagedError
from penstock.log.files import disk_errors
from penstock.log.schema import parse_schema
from penstock.log.wait import IN_MOVED_TO, Watch

WEIGHT = "_weight"
"""The column that says how many of a row came (above zero) or went (below)."""
# Somebody who commits on another machine is not seen by a watch, so it is looked for anyway.
LOOK_EVERY_SECONDS = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class ViewChange:
    """What one epoch changed in one view: the columns of the view and `_weight`, in no order. It may be nothing.

    An updated row is one that went and one that came. Whoever has applied it resumes with `after=change.epoch`.
    """

    view: str
    epoch: int
    committed_at: datetime
    key: tuple[str, ...] | None
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def rows(self) -> list[tuple[dict[str, object], int]]:
        """The rows by the names of their columns, each with its weight."""
        names = [name for name in self.table.schema.names if name != WEIGHT]
        columns = [python_values(self.table.column(name).combine_chunks()) for name in names]
        weights = self.table.column(WEIGHT).to_numpy().tolist()
        return [
            (dict(zip(names, row, strict=True)), weight)
            for row, weight in zip(zip(*columns, strict=True), weights, strict=True)
        ]


def changes(
    directory: str | os.PathLike[str],
    view: str,
    *,
    after: int | None = None,
    timeout: float | None = None,
    stop: threading.Event | None = None,
) -> Iterator[ViewChange]:
    """The changes of a view in each epoch after `after`, in order, each epoch once, also those that changed nothing.

    - `after`: the last epoch that is known, such as that of a snapshot; None: the newest commit.
    - `timeout`: for how many seconds to wait for the next commit before it ends; None: forever; 0: what is there now.
    - `stop`: once it is set, it ends.

    ChangesLostError: the follower must begin again with all rows, and follow from their epoch. That is when `after` is
    older than what is kept, when the view was shown anew (a changed program, a restored savepoint), or when `after` is
    of another history of the app than the present one.
    """
    ledger = Ledger(Path(directory))
    commit = ledger.last_commit()
    if commit is not None:
        view = _declared_name(view, list(commit.views))
    return _follow(ledger, view, ledger.last_epoch() if after is None else after, timeout, stop)


def _follow(
    ledger: Ledger, view: str, position: int, timeout: float | None, stop: threading.Event | None
) -> Iterator[ViewChange]:
    with disk_errors(str(ledger.directory)):
        watch = Watch([ledger.directory / EPOCHS_DIRECTORY], events=IN_MOVED_TO)
    try:
        while stop is None or not stop.is_set():
            if ledger.last_epoch() > position:
                position += 1
                yield _change(ledger, view, position)
            elif not _wait(ledger, watch, position, timeout, stop):
                _check_position(ledger, view, position)
                return
    finally:
        watch.close()


def _wait(ledger: Ledger, watch: Watch, position: int, timeout: float | None, stop: threading.Event | None) -> bool:
    """Wait for an epoch behind this one; False if there is none in time."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while ledger.last_epoch() == position:
        left = LOOK_EVERY_SECONDS if deadline is None else min(deadline - time.monotonic(), LOOK_EVERY_SECONDS)
        if left <= 0 or (stop is not None and stop.is_set()):
            return False
        with disk_errors(str(ledger.directory)):
            watch.wait(left)
    return ledger.last_epoch() > position


def _check_position(ledger: Ledger, view: str, position: int) -> None:
    if ledger.last_epoch() < position:
        raise _lost(view, position, f"the last epoch that was committed is {ledger.last_epoch()}")


def _change(ledger: Ledger, view: str, epoch: int) -> ViewChange:
    """What one epoch, which is committed, changed in a view."""
    kept = ledger.changes_of(epoch)
    if kept is None:
        raise _lost(view, epoch - 1, f"the changes of epoch {epoch} are not kept, or no longer")
    commit = ledger.last_commit()
    stored = commit.views if commit else {}
    name = _declared_name(view, [*stored, *kept.views, *kept.reset])
    if name in kept.reset:
        raise _lost(name, epoch - 1, f"in epoch {epoch} the view was shown anew")
    files = kept.views.get(name) or ViewChangeFiles(stored[name].version, stored[name].columns, stored[name].key)
    committed_at = _EPOCH + timedelta(microseconds=kept.committed_at)
    return ViewChange(name, epoch, committed_at, files.key, _table(ledger, name, epoch, files))


def _declared_name(view: str, views: list[str]) -> str:
    """The name of the view as it was declared; an error if the app has no such view, or no longer."""
    found = next((name for name in views if name.lower() == view.lower()), None)
    if found is None:
        raise unknown_view(view, views)
    return found


def _table(ledger: Ledger, view: str, epoch: int, files: ViewChangeFiles) -> pa.Table:
    columns = [field.with_nullable(True) for field in parse_schema(files.columns)]
    schema = pa.schema([*columns, pa.field(WEIGHT, pa.int64())])
    batches = []
    for file in files.files:
        path = ledger.directory / file.path
        with disk_errors(str(path)):
            try:
                batches += [_weighted(batch).select(schema.names) for batch in open_batches(ledger.directory, file)]
            except DamagedError as error:
                if not path.exists() and ledger.changes_of(epoch) is None:
                    raise _lost(view, epoch - 1, f"the changes of epoch {epoch} are no longer kept") from None
                raise DamagedError(f"view '{view}': {error.message}", hint=REBUILD) from None
    return pa.Table.from_batches(batches, schema)


def _weighted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a view that only grows are their own changes: each came once."""
    if WEIGHT in batch.schema.names:
        return batch
    ones = number_array(np.ones(batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, ones], names=[*batch.schema.names, WEIGHT])


def _lost(view: str, after: int, why: str) -> ChangesLostError:
    return ChangesLostError(
        f"view '{view}': its changes after epoch {after} cannot be told; {why}",
        hint="begin again: take all rows of a snapshot, then follow after its epoch",
    )
