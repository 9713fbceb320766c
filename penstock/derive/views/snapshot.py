"""The views of one commit, for any number of queries."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.derive.views.open_view import REBUILD, OpenView
from penstock.derive.views.runs import Pieces
from penstock.engine.ledger.records import Commit, StoredView
from penstock.engine.state.run import Run, RunFile, open_batches
from penstock.errors import DamagedError, DeclarationError, UnavailableError
from penstock.schema.result import Result
from penstock.schema.to_python import python_row
from penstock.storage.files import disk_errors
from penstock.suggest import closest
from penstock.units import utc_datetime

if TYPE_CHECKING:
    from penstock.derive.views.answer import Answer
    from penstock.derive.views.sql import QueryLimits
    from penstock.derive.views.status import ViewStatus


class FilesRemovedError(UnavailableError):
    """A file that a commit names is missing: newer commits no longer need it, or it is lost."""

    def __init__(self, epoch: int, path: Path) -> None:
        super().__init__(
            f"{path}: the file is missing; epoch {epoch} names it",
            hint="take a new snapshot: the app has moved on, and files of older epochs were removed",
        )
        self.path = path


class Snapshot:
    """The views of an app as one epoch committed them. It does not change, and any thread may use it.

    A view is opened on first use. If the app has committed many epochs since, its files may be gone by then. That
    raises FilesRemovedError, and a `ViewReader` retries with a newer snapshot. Views that are open stay readable.
    """

    def __init__(self, directory: Path, app: str, commit: Commit | None, known: Mapping[str, OpenView]) -> None:
        """`known` are views that are already open, as of another commit."""
        self.app = app
        self.commit = commit
        self._directory = directory
        self._known_views = dict(known)
        self._open_views: dict[str, OpenView] = {}
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """The epoch of the commit; 0 before the first."""
        return 0 if self.commit is None else self.commit.epoch

    @property
    def committed_at(self) -> datetime | None:
        return None if self.commit is None else utc_datetime(self.commit.committed_at)

    @property
    def stored_views(self) -> Mapping[str, StoredView]:
        """The views by name, as the commit names them."""
        return {} if self.commit is None else self.commit.views

    def query(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        limits: QueryLimits | None = None,
    ) -> Answer:
        """Run a query in DuckDB's SQL on the views of this snapshot. A query cannot change anything.

        `parameters` replace each `?`, or `$name` if they are given by name.
        """
        from penstock.derive.views.sql import run_query

        return run_query(self, sql, parameters, limits)

    def read(self, view: str, *, columns: Sequence[str] | None = None) -> Result:
        """All rows of a view, or some of its columns, in no order."""
        open_view = self.open(view)
        names = open_view.chosen_columns(columns)
        schema = pa.schema([open_view.schema.field(name) for name in names])
        batches = [batch.select(names) for batch in open_view.batches()]
        return Result(pa.Table.from_batches(batches, schema), epoch=self.epoch)

    def get(self, view: str, key: object) -> dict[str, object] | None:
        """The row of a key as a dict by column name; None if there is none.

        The key is a value, a tuple in the order of the key's columns, or a mapping by column name.
        """
        open_view = self.open(view)
        found = open_view.find(open_view.key.values(key))
        return None if found is None else python_row(open_view.names, found.columns, found.at)

    def views(self) -> list[ViewStatus]:
        """The views by name, and how fresh they are. Rows are counted exactly."""
        from penstock.derive.views.status import view_statuses

        return view_statuses(self)

    def open(self, name: str) -> OpenView:
        """Open a view by its name, in upper or lower case."""
        stored = self.stored_views
        name = declared_name(name, stored)
        with self._lock:
            if name not in self._open_views:
                before = self._known_views.pop(name, None)
                opener = partial(open_view_run, self._directory, self.epoch, name)
                self._open_views[name] = OpenView.open(name, stored[name], opener, before)
            return self._open_views[name]

    def open_views(self) -> Mapping[str, OpenView]:
        """The views that are open, for the snapshot of the next commit."""
        with self._lock:
            return {**self._known_views, **self._open_views}


def open_view_run(directory: Path, epoch: int, view: str, file: RunFile) -> Pieces:
    """Map and check a run of a view. FilesRemovedError if it is missing, DamagedError if its content has changed."""
    path = directory / file.path
    with disk_errors(str(path)):
        try:
            return tuple(map(Run, open_batches(directory, file)))
        except DamagedError as error:
            if not path.exists():
                raise FilesRemovedError(epoch, path) from None
            raise DamagedError(f"view '{view}': {error.message}", hint=REBUILD) from None


def declared_name(view: str, views: Collection[str], where: str = "") -> str:
    """The name of a view as it was declared, given in upper or lower case. DeclarationError if there is none."""
    if view in views:
        return view
    found = next((name for name in views if name.lower() == view.lower()), None)
    if found is None:
        raise unknown_view_error(view, views, where)
    return found


def unknown_view_error(name: str, views: Collection[str], where: str = "") -> DeclarationError:
    hint = closest(name, list(views)) or "'penstock views' lists them"
    if not views:
        hint = "views can be queried once the app has committed its first epoch: append something, and run it"
    known = ", ".join(sorted(views)) or "none"
    return DeclarationError(f"{where}there is no view '{name}'; there is {known}", hint=hint)
