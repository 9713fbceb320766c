"""A SQLite file as a target: all sinks of an app in it are tables that change together, an epoch at a time.

One process writes, any number read, with whatever opens SQLite, and neither waits for the other: WAL mode.
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
from penstock.derive.sqlite.catalog import Catalog, checked
from penstock.derive.sqlite.connection import open_for_reading, open_for_writing, plain_faults, transaction
from penstock.derive.sqlite.writing import write_changes
from penstock.errors import DamagedError, DeclarationError, FencedError, PenstockError
from penstock.log.files import disk_errors, refuse_in_a_fork

BUSY_SECONDS = 10.0
# Beyond this the WAL is emptied even if readers must be waited for. Readers of whom one always follows another before
# the last has ended would keep it growing.
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
        """Be the instance that writes; the last epoch applied, 0 for none. See `Target`."""
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

    # -- which tables there are ---------------------------------------------------------------------------------------

    def status(self) -> TargetStatus:
        """The last epoch that was applied, and which tables there are."""
        with self._guard, self._usable():
            return read_status(self._connection)

    def declare(self, tables: Sequence[TargetTable], *, hidden: bool = False) -> None:
        """Make what is missing of these tables; those that are there as declared stay as they are. See `KeepsTables`.

        One that was being built in yet another form is thrown away.
        """
        checked_tables = [checked(table) for table in tables]
        with self._change():
            self._check_token()
            catalog = Catalog(self._connection)
            for table in checked_tables:
                catalog.declare(table, building=hidden)

    def drop(self, names: Iterable[str]) -> None:
        """Remove tables with all their rows, also what is being built of them. Unknown names are passed over."""
        with self._change():
            self._check_token()
            catalog = Catalog(self._connection)
            for name in names:
                catalog.drop(name)

    def realign(self, epoch: int) -> None:
        """Take `epoch` for the last one applied. See `KeepsTables`."""
        with self._change():
            self._check_token()
            self._connection.execute("UPDATE penstock_epochs SET epoch = ?", (epoch,))

    # -- what is in them ----------------------------------------------------------------------------------------------

    def apply(self, epoch: int, changes: Mapping[str, Iterable[Changes]], *, show: Iterable[str] = ()) -> bool:
        """Apply an epoch to all tables at once; False if it was before. See `Target`.

        1. Take the file's lock for writing; readers continue with what was.
        2. Refuse an older instance; pass over an epoch that was applied.
        3. Write the changes of each table.
        4. Show what was built hidden.
        5. Record the epoch.
        6. Commit: one sync, and readers see all of it.
        """
        with self._change():  # 1 and 6
            self._check_there()
            if epoch <= self._check_token():  # 2
                return False
            catalog = Catalog(self._connection)
            for name, batches in changes.items():  # 3
                table = catalog.written(name)
                write_changes(self._connection, table, batches, add_null_keys=catalog.add_null_keys)
            for name in show:  # 4
                catalog.swap(name)
            self._connection.execute(  # 5
                "UPDATE penstock_epochs SET epoch = ?, applied_at = ?", (epoch, self._applied_at())
            )
        self._empty_a_long_wal()
        return True

    def _applied_at(self) -> str:
        return str(self._clock().astimezone(UTC).replace(tzinfo=None))

    def close(self) -> None:
        """Take the WAL over into the file, if no reader prevents it, and let go."""
        with self._guard:
            if self._closed or os.getpid() != self._process:
                return
            self._closed = True
            with suppress(PenstockError):
                self._empty_wal()
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
            hint="start the app again: it builds the tables again from the log",
        )

    def _check_token(self) -> int:
        """The last epoch applied, if this instance is still the one that writes."""
        token = self._token
        row = self._connection.execute("SELECT app, token, epoch FROM penstock_epochs").fetchone()
        if token is None or row is None or row[1] < token:
            raise DeclarationError(
                f"{self.path}: instance {token} has not taken over", hint="call take_over before anything else"
            )
        app, stored, epoch = row
        if stored > token:
            raise _fenced(app, token, stored)
        return int(epoch)

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


# -- by URL -----------------------------------------------------------------------------------------------------------


def check_url(url: str) -> None:
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise DeclarationError(
            f"to: this names no SQLite file; found {url!r}",
            hint="to='sqlite:///reports.db' beside the program, to='sqlite:////data/reports.db' anywhere",
        )


def open_target(url: str) -> SqliteTarget:
    return SqliteTarget(_path(url))


def target_status(url: str, app: str) -> TargetStatus:
    """What is there of an app; nothing is made."""
    path = _path(url)
    if not path.exists():
        return TargetStatus()
    with plain_faults(path), closing(open_for_reading(path, busy_seconds=BUSY_SECONDS)) as connection:
        return read_status(connection, app)


def read_status(connection: sqlite3.Connection, app: str | None = None) -> TargetStatus:
    """The status that a connection sees; an empty one, if the file is another app's or not made yet."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'penstock_epochs'").fetchone():
        return TargetStatus()
    row = connection.execute("SELECT app, epoch FROM penstock_epochs").fetchone()
    if row is None or app not in (None, row[0]):
        return TargetStatus()
    found = connection.execute("SELECT name, version, building FROM penstock_views").fetchall()
    tables = {name: version for name, version, building in found if not building}
    return TargetStatus(row[1], tables, {name: version for name, version, building in found if building})


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
