"""Following a view: which rows each epoch added and removed, epoch by epoch, as they are committed.

The app keeps the changes of recent epochs (see `ChangeRetention`). A follower that remembers the last epoch it has seen
loses nothing and sees nothing twice. If changes are no longer kept, or are meaningless because the view was rebuilt or
restored, it gets a ChangesLostError and starts over: all rows of a snapshot, then the changes after its epoch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.derive.views.open_view import REBUILD, number_array
from penstock.derive.views.snapshot import declared_name
from penstock.engine.ledger.ledger import EPOCHS_DIRECTORY, Ledger
from penstock.engine.ledger.records import ViewChangeFiles
from penstock.engine.state.run import open_batches
from penstock.errors import ChangesLostError, DamagedError
from penstock.schema.arrow import parse_schema
from penstock.schema.result import Result
from penstock.schema.to_python import python_values
from penstock.storage.files import disk_errors
from penstock.storage.watch import IN_MOVED_TO, Watch
from penstock.units import utc_datetime

WEIGHT = "_weight"
"""The column that says how often a row was added (positive) or removed (negative)."""
# A watch does not see commits from another machine, so followers poll as well.
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class ViewChange:
    """What one epoch changed in one view, in no order. It may be empty.

        for change in app.changes("totals"):
            for row in change.added: ...    # new rows, and the new rows of updates
            for row in change.removed: ...  # rows that are gone, and the old rows of updates

    `deleted` has only the rows that are gone: in a view with a key, those whose key has no row any more. So a copy of
    the view by key stores `added` and deletes `deleted`. Once a change is applied, continue with `after=change.epoch`.
    `table` has all rows, with `_weight`: how often a row was added, or, if it is negative, removed.
    """

    view: str
    epoch: int
    committed_at: datetime
    key: tuple[str, ...] | None
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<ViewChange of {self.view}: epoch {self.epoch}, {len(self.added)} added, {len(self.removed)} removed>"

    @property
    def added(self) -> Result:
        """The rows that the view has since this epoch."""
        return self._rows(self._weights)

    @property
    def removed(self) -> Result:
        """The rows that the view had before this epoch, and no longer has."""
        return self._rows(-self._weights)

    @property
    def deleted(self) -> Result:
        """The removed rows that nothing replaces; if the view has a key, those whose key is gone."""
        if not self.key:
            return self.removed if self.key is None or not len(self.added) else self.removed[:0]
        kept = {_key_of(row) for row in self._key_rows(self.added)}
        gone = [at for at, row in enumerate(self._key_rows(self.removed)) if _key_of(row) not in kept]
        return Result(self.removed.to_arrow().take(number_array(np.array(gone, dtype=np.int64))), epoch=self.epoch)

    @property
    def _weights(self) -> npt.NDArray[np.int64]:
        return self.table.column(WEIGHT).to_numpy()

    def _rows(self, counts: npt.NDArray[np.int64]) -> Result:
        """Each row as often as it counts; those that count less than once are left out."""
        at = np.repeat(np.arange(len(counts)), np.maximum(counts, 0))
        return Result(self.table.drop_columns([WEIGHT]).take(number_array(at)), epoch=self.epoch)

    def _key_rows(self, rows: Result) -> Result:
        return Result(rows.to_arrow().select(list(self.key or ())))

    def rows(self) -> list[tuple[dict[str, object], int]]:
        """All rows as dicts by column name, each with its weight: positive if it was added, negative if removed."""
        names = [name for name in self.table.schema.names if name != WEIGHT]
        columns = [python_values(self.table.column(name).combine_chunks()) for name in names]
        weights = self.table.column(WEIGHT).to_numpy().tolist()
        return [
            (dict(zip(names, row, strict=True)), weight)
            for row, weight in zip(zip(*columns, strict=True), weights, strict=True)
        ]


def _key_of(row: dict[str, object]) -> str:
    """A key as text: values such as lists cannot be in a set."""
    return repr(list(row.values()))


def changes(
    directory: str | os.PathLike[str],
    view: str,
    *,
    after: int | None = None,
    timeout: float | None = None,
    stop: threading.Event | None = None,
) -> Iterator[ViewChange]:
    """The changes of a view in each epoch after `after`, in order. Every epoch comes once, even if it changed nothing.

    - `after`: the last epoch already seen, such as that of a snapshot. None: the newest commit.
    - `timeout`: how many seconds to wait for the next commit before ending. None: forever. 0: do not wait.
    - `stop`: ends the iteration once it is set.

    ChangesLostError: the follower must start over with all rows, and follow from their epoch. It is raised if `after`
    is older than what is kept, if the view was replaced as a whole (a changed program, a restored savepoint), or if
    `after` belongs to another history of the app.
    """
    ledger = Ledger(Path(directory))
    commit = ledger.last_commit()
    if commit is not None:
        view = declared_name(view, commit.views)
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
                yield _read_change(ledger, view, position)
            elif not _wait(ledger, watch, position, timeout, stop):
                _check_position(ledger, view, position)
                return
    finally:
        watch.close()


def _wait(ledger: Ledger, watch: Watch, position: int, timeout: float | None, stop: threading.Event | None) -> bool:
    """Wait for an epoch after this one. False if there is none in time."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while ledger.last_epoch() == position:
        remaining = POLL_SECONDS if deadline is None else min(deadline - time.monotonic(), POLL_SECONDS)
        if remaining <= 0 or (stop is not None and stop.is_set()):
            return False
        with disk_errors(str(ledger.directory)):
            watch.wait(remaining)
    return ledger.last_epoch() > position


def _check_position(ledger: Ledger, view: str, position: int) -> None:
    if ledger.last_epoch() < position:
        raise _lost_changes_error(view, position, f"the last epoch that was committed is {ledger.last_epoch()}")


def _read_change(ledger: Ledger, view: str, epoch: int) -> ViewChange:
    """What a committed epoch changed in a view."""
    stored_changes = ledger.changes_of(epoch)
    if stored_changes is None:
        raise _lost_changes_error(view, epoch - 1, f"the changes of epoch {epoch} are not kept, or no longer")
    commit = ledger.last_commit()
    stored = commit.views if commit else {}
    name = declared_name(view, [*stored, *stored_changes.views, *stored_changes.reset])
    if name in stored_changes.reset:
        raise _lost_changes_error(name, epoch - 1, f"in epoch {epoch} the view was replaced as a whole")
    files = stored_changes.views.get(name) or ViewChangeFiles(
        stored[name].version, stored[name].columns, stored[name].key
    )
    committed_at = utc_datetime(stored_changes.committed_at)
    return ViewChange(name, epoch, committed_at, files.key, _read_table(ledger, name, epoch, files))


def _read_table(ledger: Ledger, view: str, epoch: int, files: ViewChangeFiles) -> pa.Table:
    columns = [field.with_nullable(True) for field in parse_schema(files.columns)]
    schema = pa.schema([*columns, pa.field(WEIGHT, pa.int64())])
    batches = []
    for file in files.files:
        path = ledger.directory / file.path
        with disk_errors(str(path)):
            try:
                batches += [_with_weights(batch).select(schema.names) for batch in open_batches(ledger.directory, file)]
            except DamagedError as error:
                if not path.exists() and ledger.changes_of(epoch) is None:
                    raise _lost_changes_error(
                        view, epoch - 1, f"the changes of epoch {epoch} are no longer kept"
                    ) from None
                raise DamagedError(f"view '{view}': {error.message}", hint=REBUILD) from None
    return pa.Table.from_batches(batches, schema)


def _with_weights(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add weights to the rows of a view that only grows: its new rows are its changes, each added once."""
    if WEIGHT in batch.schema.names:
        return batch
    weights = number_array(np.ones(batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, weights], names=[*batch.schema.names, WEIGHT])


def _lost_changes_error(view: str, after: int, why: str) -> ChangesLostError:
    return ChangesLostError(
        f"view '{view}': its changes after epoch {after} are not known; {why}",
        hint="start over: rows = app.read(view), then app.changes(view, after=rows.epoch)",
    )
