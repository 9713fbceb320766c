"""The embedded view store: all views of an app in one SQLite file, changed together, an epoch at a time.

One process writes, any number read (`query`, `status`), and neither waits for the other: WAL mode.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from penstock.contracts import ViewChanges, ViewTable
from penstock.derive.catalog import Catalog, checked
from penstock.derive.connection import open_for_writing, plain_faults, transaction
from penstock.derive.declared import as_parameter
from penstock.derive.writing import write_changes
from penstock.errors import ConflictError, DamagedError, DeclarationError, FencedError, PenstockError
from penstock.log.files import disk_errors, refuse_in_a_fork

BUSY_SECONDS = 10.0
# Beyond this the WAL is emptied even if readers must be waited for. Readers of whom one always follows another before
# the last has ended would keep it growing.
MOST_WAL_BYTES = 256 * 1024 * 1024
WAL_PATIENCE_SECONDS = 1.0


def _now() -> datetime:
    return datetime.now(UTC)


class ViewStore:
    """A `TableSink` in one file. Use it as a context manager, or call `close`. Reopen it after a fork."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Open the file, or make a new one with the folders above it. `clock` says when an epoch was applied."""
        self.path = Path(path)
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._token: int | None = None
        self._closed = False
        with disk_errors(str(self.path)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with plain_faults(self.path):
            self._connection = open_for_writing(self.path, busy_seconds=busy_seconds)
        self._file = self.path.stat()

    # -- who writes ---------------------------------------------------------------------------------------------------

    def take_over(self, app: str, token: int) -> int:
        """Be the instance that writes; the last epoch applied, 0 for none. See `Sink`."""
        with self._change():
            row = self._connection.execute("SELECT app, token, epoch FROM penstock_epochs").fetchone()
            if row is None:
                self._connection.execute("INSERT INTO penstock_epochs VALUES (?, ?, 0, NULL, '{}')", (app, token))
                row = (app, -1, 0)
            owner, stored, epoch = row
            if owner != app:
                raise DeclarationError(
                    f"{self.path}: these are the views of app '{owner}'; found app '{app}'",
                    hint="give each app a file of its own",
                )
            if stored >= token:
                raise _fenced(app, token, stored)
            self._connection.execute("UPDATE penstock_epochs SET token = ?", (token,))
        self._token = token
        return int(epoch)

    # -- which views there are ----------------------------------------------------------------------------------------

    def declare(self, views: Sequence[ViewTable], *, building: bool = False) -> None:
        """Make what is missing of these views; those that are there as declared stay as they are.

        With `building`, a view that is not there in this form is made empty and hidden: changes go to the new one from
        then on, and readers see the old one, or none, until `apply(..., swap=[name])`. One that was being built in yet
        another form is thrown away.
        """
        tables = [checked(view) for view in views]
        with self._change():
            self._check_token(self._token)
            catalog = Catalog(self._connection)
            for table in tables:
                catalog.declare(table, building=building)

    def declared(self, *, building: bool = False) -> dict[str, ViewTable]:
        """The views that readers see; with `building`, those that are being built beside them."""
        with self._guard, self._usable():
            catalog = Catalog(self._connection)
        return {view.name: view.table for view in (catalog.building() if building else catalog.live())}

    def drop(self, names: Iterable[str]) -> None:
        """Remove views with all their rows, also what is being built of them. Unknown names are passed over."""
        with self._change():
            self._check_token(self._token)
            catalog = Catalog(self._connection)
            for name in names:
                catalog.drop(name)

    def reset(self, epoch: int) -> None:
        """Remove all views, and take `epoch` for the last one applied: for an app that builds everything anew."""
        with self._change():
            self._check_token(self._token)
            catalog = Catalog(self._connection)
            for view in [*catalog.building(), *catalog.live()]:
                catalog.drop(view.name)
            self._connection.execute("UPDATE penstock_epochs SET epoch = ?, applied_at = NULL, facts = '{}'", (epoch,))

    # -- what is in them ----------------------------------------------------------------------------------------------

    def apply(
        self,
        epoch: int,
        token: int,
        changes: Mapping[str, Iterable[ViewChanges]],
        *,
        facts: Mapping[str, object] | None = None,
        swap: Iterable[str] = (),
    ) -> bool:
        """Apply an epoch to all views at once; False if it was before. See `Sink`.

        `swap` names views of which another version was built: readers see it from this epoch on.

        1. Take the file's lock for writing; readers go on with what was.
        2. Refuse an older instance and a gap in the epochs; pass over an epoch that was applied.
        3. Write the changes of each view.
        4. Swap in what was built.
        5. Record the epoch with its facts.
        6. Commit: one sync, and readers see all of it.
        """
        document = json.dumps(dict(facts or {}))
        with self._change():  # 1 and 6
            self._check_there()
            last = self._check_token(token)  # 2
            if epoch <= last:
                return False
            self._check_order(epoch, last)
            catalog = Catalog(self._connection)
            for name, batches in changes.items():  # 3
                view = catalog.written(name)
                write_changes(self._connection, view, batches, add_null_keys=catalog.add_null_keys)
            for name in swap:  # 4
                catalog.swap(name)
            self._connection.execute(  # 5
                "UPDATE penstock_epochs SET epoch = ?, applied_at = ?, facts = ?",
                (epoch, as_parameter(self._clock()), document),
            )
        self._empty_a_long_wal()
        return True

    def close(self) -> None:
        """Take the WAL over into the file, if no reader prevents it, and let go."""
        with self._guard:
            if self._closed or os.getpid() != self._process:
                return
            self._closed = True
            with suppress(PenstockError):
                self._empty_wal()
            self._connection.close()

    def __enter__(self) -> ViewStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- how ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _usable(self) -> Iterator[None]:
        refuse_in_a_fork(self._process, self.path)
        if self._closed:
            raise DeclarationError(f"{self.path}: this view store is closed", hint="open it again")
        with plain_faults(self.path):
            yield

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._guard, self._usable(), transaction(self._connection):
            yield

    def _check_there(self) -> None:
        """Refuse to write into a file that has lost its name: nobody would ever read it."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.stat(), self._file):
                return
        raise DamagedError(
            f"{self.path}: the file was removed or replaced while it was in use; nothing was applied",
            hint="build the views again from the log: penstock run --rebuild; or restore a savepoint",
        )

    def _check_token(self, token: int | None) -> int:
        """The last epoch applied, if this instance is still the one that writes."""
        row = self._connection.execute("SELECT app, token, epoch FROM penstock_epochs").fetchone()
        if token is None or row is None or row[1] < token:
            raise DeclarationError(
                f"{self.path}: instance {token} has not taken over", hint="call take_over before anything else"
            )
        app, stored, epoch = row
        if stored > token:
            raise _fenced(app, token, stored)
        return int(epoch)

    def _check_order(self, epoch: int, last: int) -> None:
        if epoch != last + 1:
            raise ConflictError(
                f"{self.path}: epoch {epoch} does not follow epoch {last}, the last one applied",
                expected=last + 1,
                actual=epoch,
                hint=f"apply epoch {last + 1} first, or reset the store and build the views again",
            )

    def _empty_a_long_wal(self) -> None:
        wal = self.path.with_name(self.path.name + "-wal")
        with suppress(PenstockError, FileNotFoundError):  # the epoch is applied, whatever becomes of this
            if wal.stat().st_size > MOST_WAL_BYTES:
                self._empty_wal()

    def _empty_wal(self) -> None:
        with plain_faults(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {int(WAL_PATIENCE_SECONDS * 1000)}")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")


def _fenced(app: str, token: int, stored: int) -> FencedError:
    if stored == token:
        return FencedError(
            f"app '{app}': there is an instance {token} already",
            hint="start the app again: each start has a number of its own",
        )
    return FencedError(
        f"app '{app}': instance {token} was replaced by instance {stored}",
        hint="only the newest instance of an app runs; end this one, or start it again to take over",
    )
