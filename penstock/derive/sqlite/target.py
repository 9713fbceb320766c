"""A SQLite file as a target: the sinks of an app are tables that change together, one epoch at a time.

One process writes, and any number of processes read with any tool for SQLite. In WAL mode neither waits for the other.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from penstock.contracts import Changes, TargetStatus, TargetTable
from penstock.derive.sqlite.catalog import Catalog, normalised_table
from penstock.derive.sqlite.connection import open_for_reading, open_for_writing, sqlite_errors, transaction
from penstock.derive.sqlite.write import write_changes
from penstock.errors import DamagedError, DeclarationError, FencedError, PenstockError
from penstock.storage.files import disk_errors, refuse_in_a_fork

BUSY_SECONDS = 10.0
# A WAL beyond this size is truncated even if that means waiting for readers. Readers that always overlap would
# otherwise let it grow without limit.
MOST_WAL_BYTES = 256 * 1024 * 1024
WAL_PATIENCE_SECONDS = 1.0


def _now() -> datetime:
    return datetime.now(UTC)


class SqliteTarget:
    """A `Target` that `KeepsTables`, in one file. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Open the file, or create it with its parent folders. `clock` gives the time at which an epoch was applied."""
        self.path = Path(path)
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._token: int | None = None
        self._closed = False
        with disk_errors(str(self.path)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with sqlite_errors(self.path):
            self._connection = open_for_writing(self.path, busy_seconds=busy_seconds)
        self._file = self.path.stat()

    # -- who writes ---------------------------------------------------------------------------------------------------

    def take_over(self, app: str, token: int) -> int:
        """Become the instance that writes. Returns the last epoch applied, 0 for none. See `Target`."""
        with self._transaction():
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
                raise _fenced_error(app, token, stored)
            self._connection.execute("UPDATE penstock_epochs SET token = ?", (token,))
        self._token = token
        return int(epoch)

    # -- which tables there are ---------------------------------------------------------------------------------------

    def status(self) -> TargetStatus:
        """The last epoch that was applied, and the versions of all tables. See `KeepsTables`."""
        with self._guard, self._usable():
            return read_status(self._connection)

    def declare(self, tables: Sequence[TargetTable], *, hidden: bool = False) -> None:
        """Create the tables that are missing; tables that exist as declared are left alone. See `KeepsTables`.

        A hidden table that was being built in yet another form is dropped.
        """
        normalised = [normalised_table(table) for table in tables]
        with self._transaction():
            self._check_token()
            catalog = Catalog(self._connection)
            for table in normalised:
                catalog.declare(table, hidden=hidden)

    def drop(self, names: Iterable[str]) -> None:
        """Remove tables with all their rows, including hidden ones. Unknown names are ignored."""
        with self._transaction():
            self._check_token()
            catalog = Catalog(self._connection)
            for name in names:
                catalog.drop(name)

    def realign(self, epoch: int) -> None:
        """Set `epoch` as the last one applied. See `KeepsTables`."""
        with self._transaction():
            self._check_token()
            self._connection.execute("UPDATE penstock_epochs SET epoch = ?", (epoch,))

    # -- what is in them ----------------------------------------------------------------------------------------------

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        """Apply an epoch to all tables at once. False if it had been applied before. See `Target`.

        1. Take the file's write lock; readers continue to see the last epoch.
        2. Refuse an older instance; skip an epoch that was applied.
        3. Write the changes of each table.
        4. Show what was built hidden.
        5. Record the epoch.
        6. Commit: one sync, and readers see all of it.
        """
        with self._transaction():  # 1 and 6
            self._check_file_in_place()
            if epoch <= self._check_token():  # 2
                return False
            catalog = Catalog(self._connection)
            for name, batches in changes.items():  # 3
                table = catalog.table_to_write(name)
                write_changes(self._connection, table, batches, create_null_keys_table=catalog.create_null_keys_table)
            for name in show:  # 4
                catalog.show(name)
            self._connection.execute(  # 5
                "UPDATE penstock_epochs SET epoch = ?, applied_at = ?", (epoch, self._applied_at())
            )
        self._checkpoint_long_wal()
        return True

    def _applied_at(self) -> str:
        return str(self._clock().astimezone(UTC).replace(tzinfo=None))

    def close(self) -> None:
        """Checkpoint the WAL into the file, unless a reader prevents it, and close the connection."""
        with self._guard:
            if self._closed or os.getpid() != self._process:
                return
            self._closed = True
            with suppress(PenstockError):
                self._checkpoint_wal()
            self._connection.close()

    def __enter__(self) -> SqliteTarget:
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
            raise DeclarationError(f"{self.path}: this target is closed", hint="open it again")
        with sqlite_errors(self.path):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guard, self._usable(), transaction(self._connection):
            yield

    def _check_file_in_place(self) -> None:
        """Raise DamagedError if the file no longer has its name: nobody would ever read what is written to it."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.stat(), self._file):
                return
        raise DamagedError(
            f"{self.path}: the file was removed or replaced while it was in use; nothing was applied",
            hint="start the app again: it builds the tables again from the log",
        )

    def _check_token(self) -> int:
        """The last epoch applied. FencedError unless this instance is still the one that writes."""
        token = self._token
        row = self._connection.execute("SELECT app, token, epoch FROM penstock_epochs").fetchone()
        if token is None or row is None or row[1] < token:
            raise DeclarationError(
                f"{self.path}: instance {token} has not taken over", hint="call take_over before anything else"
            )
        app, stored, epoch = row
        if stored > token:
            raise _fenced_error(app, token, stored)
        return int(epoch)

    def _checkpoint_long_wal(self) -> None:
        wal = self.path.with_name(self.path.name + "-wal")
        with suppress(PenstockError, FileNotFoundError):  # the epoch is applied, whether or not this succeeds
            if wal.stat().st_size > MOST_WAL_BYTES:
                self._checkpoint_wal()

    def _checkpoint_wal(self) -> None:
        with sqlite_errors(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {int(WAL_PATIENCE_SECONDS * 1000)}")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")


def _fenced_error(app: str, token: int, stored: int) -> FencedError:
    if stored == token:
        return FencedError(
            f"app '{app}': there is an instance {token} already",
            hint="start the app again: each start has a number of its own",
        )
    return FencedError(
        f"app '{app}': instance {token} was replaced by instance {stored}",
        hint="only the newest instance of an app runs; end this one, or start it again to take over",
    )


# -- by URL -----------------------------------------------------------------------------------------------------------


def check_url(url: str) -> None:
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise DeclarationError(
            f"to: this names no SQLite file; found {url!r}",
            hint="to='sqlite:///reports.db' next to the program, to='sqlite:////data/reports.db' anywhere",
        )


def open_target(url: str) -> SqliteTarget:
    return SqliteTarget(_file_path(url))


def target_status(url: str, app: str) -> TargetStatus:
    """What the file has stored for an app. Creates nothing."""
    path = _file_path(url)
    if not path.exists():
        return TargetStatus()
    with sqlite_errors(path), closing(open_for_reading(path, busy_seconds=BUSY_SECONDS)) as connection:
        return read_status(connection, app)


def read_status(connection: sqlite3.Connection, app: str | None = None) -> TargetStatus:
    """The status that a connection sees. Empty if the file belongs to another app or has no tables yet."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'penstock_epochs'").fetchone():
        return TargetStatus()
    row = connection.execute("SELECT app, epoch FROM penstock_epochs").fetchone()
    if row is None or app not in (None, row[0]):
        return TargetStatus()
    found = connection.execute("SELECT name, version, building FROM penstock_views").fetchall()
    tables = {name: version for name, version, hidden in found if not hidden}
    return TargetStatus(row[1], tables, {name: version for name, version, hidden in found if hidden})


def _file_path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
