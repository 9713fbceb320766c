"""Reads the newest commit of an app, and keeps open what the last commit had open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.derive.views.open_view import REBUILD
from penstock.derive.views.snapshot import FilesRemovedError, Snapshot
from penstock.engine.ledger.ledger import APP_NAME, Ledger
from penstock.errors import DamagedError

if TYPE_CHECKING:
    from penstock.derive.views.answer import Answer
    from penstock.derive.views.follow import ViewChange
    from penstock.derive.views.sql import QueryLimits
    from penstock.derive.views.status import ViewStatus
    from penstock.engine.ledger.records import Commit
    from penstock.schema.result import Result

# If files disappear this often in a row before they can be opened, something is wrong with the app.
ATTEMPTS = 20

Found = TypeVar("Found")


class ViewReader:
    """Reads the views of an app, whose folder is `<log>/apps/<app>`. It may be kept open, and used by many threads.

    It takes no lock that the app could wait for, and writes nothing. Every query is answered from one commit, the
    newest. How that stays correct while the app runs:

    1. Look for the newest commit. If it is already known, use its snapshot again.
    2. Otherwise make a snapshot of it, which reuses the runs that are open, and opens and checks new ones.
    3. If a file is missing, start again with the newest commit: the app keeps the files of its last few commits. Only
       if the newest commit itself names a missing file is something damaged.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._lock = threading.Lock()
        self._ledger = Ledger(self.directory)
        self._description = str(self.directory / APP_NAME)
        self._identity = _identity(self._description)
        self._commit_paths = (0, "", "")
        self._newest = Snapshot(self.directory, self._ledger.app, None, {})

    def refresh(self) -> Snapshot:
        """A snapshot of the newest commit. Snapshots that were returned before do not change."""
        with self._lock:
            found = _identity(self._description)
            if self._identity != found:  # the app was removed and started afresh in the same folder
                self._ledger, self._identity = Ledger(self.directory), found
                self._newest = Snapshot(self.directory, self._ledger.app, None, {})
            if not self._is_newest() and self._ledger.last_epoch() != self._newest.epoch:
                commit = self._ledger.last_commit()
                self._newest = Snapshot(self.directory, self._ledger.app, commit, self._newest.open_views())
            return self._newest

    def _is_newest(self) -> bool:
        """Whether the known commit is certainly the last, without listing the folder.

        Commits are numbered one after the other and removed oldest first. So if one exists and the next does not, none
        is newer.
        """
        epoch, known, following = self._commit_paths
        if epoch != self._newest.epoch:
            epoch = self._newest.epoch
            known, following = (str(self._ledger.path_of(number, "commit")) for number in (epoch, epoch + 1))
            self._commit_paths = epoch, known, following
        return epoch > 0 and not os.path.exists(following) and os.path.exists(known)

    @property
    def commit(self) -> Commit | None:
        """The commit that was newest at the last refresh; None before the first."""
        return self._newest.commit

    @property
    def epoch(self) -> int:
        return self._newest.epoch

    def query(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        limits: QueryLimits | None = None,
    ) -> Answer:
        """Run a query on the newest commit. See `Snapshot.query`."""
        return self.with_newest(lambda snapshot: snapshot.query(sql, parameters, limits=limits))

    def read(self, view: str, *, columns: Sequence[str] | None = None) -> Result:
        """All rows of a view in the newest commit. See `Snapshot.read`."""
        return self.with_newest(lambda snapshot: snapshot.read(view, columns=columns))

    def get(self, view: str, key: object) -> dict[str, object] | None:
        """The row of a key in the newest commit. See `Snapshot.get`."""
        return self.with_newest(lambda snapshot: snapshot.get(view, key))

    def views(self) -> list[ViewStatus]:
        """The views, and how fresh they are. See `Snapshot.views`."""
        return self.with_newest(lambda snapshot: snapshot.views())

    def changes(
        self, view: str, *, after: int | None = None, timeout: float | None = None, stop: threading.Event | None = None
    ) -> Iterator[ViewChange]:
        """The changes of a view, epoch by epoch. See `changes`."""
        from penstock.derive.views.follow import changes

        return changes(self.directory, view, after=after, timeout=timeout, stop=stop)

    def with_newest(self, work: Callable[[Snapshot], Found]) -> Found:
        """Call `work` with the newest snapshot, and again with a newer one if its files were removed meanwhile."""
        for attempt in count(1):
            snapshot = self.refresh()  # 1 and 2
            try:
                return work(snapshot)
            except FilesRemovedError as error:  # 3
                if self.refresh().epoch == snapshot.epoch or attempt == ATTEMPTS:
                    what = f"the file is missing; epoch {snapshot.epoch} of app '{snapshot.app}' names it"
                    raise DamagedError(f"{error.path}: {what}", hint=REBUILD) from None
        raise AssertionError("unreachable")


def _identity(description: str) -> tuple[int, int] | None:
    """Distinguishes an app from one that was started afresh in the same folder, by the file that describes it."""
    try:
        found = os.stat(description)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def query(
    directory: str | os.PathLike[str],
    sql: str,
    parameters: Sequence[object] | Mapping[str, object] = (),
    *,
    limits: QueryLimits | None = None,
) -> Answer:
    """Run one query on the views of the app in this folder. For more than one, keep a `ViewReader`."""
    return ViewReader(directory).query(sql, parameters, limits=limits)


def get(directory: str | os.PathLike[str], view: str, key: object) -> dict[str, object] | None:
    """The row of a key in a view of the app in this folder; None if there is none."""
    return ViewReader(directory).get(view, key)


def views(directory: str | os.PathLike[str]) -> list[ViewStatus]:
    """The views of the app in this folder, by name."""
    return ViewReader(directory).views()
