"""Following the commits of an app: always the newest, with what is open already kept open."""

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

# An app that removes files faster than they can be opened so often in a row is not one that runs well.
ATTEMPTS = 20

Result = TypeVar("Result")


class ViewReader:
    """Reads the views of an app, whose folder is `<log>/apps/<app>`. For one question or for years; for many threads.

    It takes no lock that the app could wait for, and writes nothing. Every question is answered from the newest commit
    as a whole. How it stays right while the app runs:

    1. Look for the newest commit. If it is the one that is known, its snapshot is asked again.
    2. Otherwise make a snapshot of it, which takes over the runs that are open, and opens and checks new ones.
    3. If a file is not there, take the newest commit again: the app keeps the files of its last few commits. Only if
       the newest commit itself names a file that is not there is something damaged.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._lock = threading.Lock()
        self._ledger = Ledger(self.directory)
        self._description = str(self.directory / APP_NAME)
        self._identity = _identity(self._description)
        self._looked_for = (0, "", "")
        self._newest = Snapshot(self.directory, self._ledger.app, None, {})

    def refresh(self) -> Snapshot:
        """The newest commit. A snapshot that somebody has stays as it is."""
        with self._lock:
            if self._identity != (
                found := _identity(self._description)
            ):  # moved away, and begun anew in the same place
                self._ledger, self._identity = Ledger(self.directory), found
                self._newest = Snapshot(self.directory, self._ledger.app, None, {})
            if not self._is_newest() and self._ledger.last_epoch() != self._newest.epoch:
                commit = self._ledger.last_commit()
                self._newest = Snapshot(self.directory, self._ledger.app, commit, self._newest.opened())
            return self._newest

    def _is_newest(self) -> bool:
        """Whether the known commit is the last for certain, without listing the folder.

        Commits come one after the other and are removed oldest first. So where one is kept and the next is not there,
        none is newer.
        """
        epoch, known, following = self._looked_for
        if epoch != self._newest.epoch:
            epoch = self._newest.epoch
            known, following = (str(self._ledger.path_of(number, "commit")) for number in (epoch, epoch + 1))
            self._looked_for = epoch, known, following
        return epoch > 0 and not os.path.exists(following) and os.path.exists(known)

    @property
    def commit(self) -> Commit | None:
        """The commit that was newest when somebody last looked; None before the first."""
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
        """Answer a question from the newest commit. See `Snapshot.query`."""
        return self.with_newest(lambda snapshot: snapshot.query(sql, parameters, limits=limits))

    def get(self, view: str, key: object) -> dict[str, object] | None:
        """The row of a key in the newest commit. See `Snapshot.get`."""
        return self.with_newest(lambda snapshot: snapshot.get(view, key))

    def views(self) -> list[ViewStatus]:
        """What the views are and how fresh. See `Snapshot.views`."""
        return self.with_newest(lambda snapshot: snapshot.views())

    def changes(
        self, view: str, *, after: int | None = None, timeout: float | None = None, stop: threading.Event | None = None
    ) -> Iterator[ViewChange]:
        """The changes of a view, epoch by epoch. See `changes`."""
        from penstock.derive.views.follow import changes

        return changes(self.directory, view, after=after, timeout=timeout, stop=stop)

    def with_newest(self, work: Callable[[Snapshot], Result]) -> Result:
        """Do something with the newest snapshot, and again with a newer one where its files have gone meanwhile."""
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
    """Tells an app from one that was begun anew in the same place, by the file that describes it."""
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
    """Answer one question about the views of the app in this folder. Whoever asks more keeps a `ViewReader`."""
    return ViewReader(directory).query(sql, parameters, limits=limits)


def get(directory: str | os.PathLike[str], view: str, key: object) -> dict[str, object] | None:
    """The row of a key in a view of the app in this folder; None if there is none."""
    return ViewReader(directory).get(view, key)


def views(directory: str | os.PathLike[str]) -> list[ViewStatus]:
    """The views of the app in this folder, by name."""
    return ViewReader(directory).views()
