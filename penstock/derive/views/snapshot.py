"""The views of one commit: one moment, for as many questions as are asked of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.derive.views.open_view import REBUILD, OpenView
from penstock.derive.views.runs import Pieces
from penstock.derive.views.values import python_row
from penstock.engine.ledger.records import Commit, StoredView
from penstock.engine.state.run import Run, RunFile, open_batches
from penstock.errors import DamagedError, DeclarationError, UnavailableError
from penstock.log.ddl import closest
from penstock.log.files import disk_errors

if TYPE_CHECKING:
    from penstock.derive.views.answer import Answer
    from penstock.derive.views.sql import QueryLimits
    from penstock.derive.views.status import ViewStatus

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FilesRemovedError(UnavailableError):
    """A file that a commit names is not there: newer commits have let it go, or it is lost."""

    def __init__(self, epoch: int, path: Path) -> None:
        super().__init__(
            f"{path}: the file is not there; epoch {epoch} names it",
            hint="take a new snapshot: the app has come further, and files of older epochs were removed",
        )
        self.path = path


class Snapshot:
    """What the views of an app were when an epoch was committed. It does not change; any thread may ask it.

    A view is opened when it is first asked for. If the app has come far since, its files may be gone by then: that is a
    FilesRemovedError, and a `ViewReader` answers it with a newer snapshot. What is open stays readable.
    """

    def __init__(self, directory: Path, app: str, commit: Commit | None, known: Mapping[str, OpenView]) -> None:
        """`known` are views that are open already, as of another commit."""
        self.app = app
        self.commit = commit
        self._directory = directory
        self._known = dict(known)
        self._opened: dict[str, OpenView] = {}
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """The epoch of the commit; 0 before the first."""
        return 0 if self.commit is None else self.commit.epoch

    @property
    def committed_at(self) -> datetime | None:
        return None if self.commit is None else _EPOCH + timedelta(microseconds=self.commit.committed_at)

    @property
    def stored(self) -> Mapping[str, StoredView]:
        """The views by name, as the commit names them."""
        return {} if self.commit is None else self.commit.views

    def query(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        limits: QueryLimits | None = None,
    ) -> Answer:
        """Answer a question in DuckDB's SQL about the views of this moment. Nothing can be changed by it.

        `parameters` take the places of `?`, or, given by name, of `$name`.
        """
        from penstock.derive.views.sql import ask

        return ask(self, sql, parameters, limits)

    def get(self, view: str, key: object) -> dict[str, object] | None:
        """The row of a key, by the names of its columns; None if there is none.

        The key is a value, a tuple in the order of the key's columns, or a mapping from their names.
        """
        opened = self.open(view)
        found = opened.find(opened.key.values(key))
        return None if found is None else python_row(opened.names, found.columns, found.at)

    def views(self) -> list[ViewStatus]:
        """What the views are and how fresh, by name. Rows are counted exactly."""
        from penstock.derive.views.status import view_statuses

        return view_statuses(self)

    def open(self, name: str) -> OpenView:
        """A view by its name, in upper or lower case."""
        stored = self.stored
        if name not in stored:
            name = next((one for one in stored if one.lower() == name.lower()), name)
        if name not in stored:
            raise unknown_view(name, list(stored))
        with self._lock:
            if name not in self._opened:
                before = self._known.pop(name, None)
                opener = partial(open_view_run, self._directory, self.epoch, name)
                self._opened[name] = OpenView.of(name, stored[name], opener, before)
            return self._opened[name]

    def opened(self) -> Mapping[str, OpenView]:
        """What is open: for the snapshot of the next commit."""
        with self._lock:
            return {**self._known, **self._opened}


def open_view_run(directory: Path, epoch: int, view: str, file: RunFile) -> Pieces:
    """A run of a view, mapped and checked. FilesRemovedError if it is not there, DamagedError if it is another."""
    path = directory / file.path
    with disk_errors(str(path)):
        try:
            return tuple(map(Run, open_batches(directory, file)))
        except DamagedError as error:
            if not path.exists():
                raise FilesRemovedError(epoch, path) from None
            raise DamagedError(f"view '{view}': {error.message}", hint=REBUILD) from None


def unknown_view(name: str, views: Sequence[str], where: str = "") -> DeclarationError:
    hint = closest(name, list(views)) or "'penstock views' lists them"
    if not views:
        hint = "views can be asked once the app has committed its first epoch: append something, and let it run"
    listed = ", ".join(sorted(views)) or "none"
    return DeclarationError(f"{where}there is no view '{name}'; there is {listed}", hint=hint)
