"""A capture as a process: from a declaration to rows in topics, until it is stopped, whatever is unavailable meanwhile.

Its loop; the same numbers mark the steps in the code:

1. Become the writer `capture.<name>`: an older process of the capture is refused from now on.
2. Do what was requested: copy tables again, which only changes the position; accept dropped columns; forget rows.
3. Pump, until it should stop, something is requested, or the database or the log is unavailable.
4. If unavailable: pause, and begin again with 1 or 2. Any other error ends the capture, and stands in its status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from penstock.capture.copy import Copy
from penstock.capture.copy.position import CopyPosition
from penstock.capture.declaration import CaptureDeclaration, load_declaration, store_declaration
from penstock.capture.folder import CaptureFolder, CaptureStatus, TableStatus, this_process
from penstock.capture.meter import CaptureMeter
from penstock.capture.pump import Progress, PumpOptions, Stop, pump
from penstock.contracts import Captured, Database, Log, Position, SourceOptions, SourceTable, Writer
from penstock.databases import check_database, open_database
from penstock.errors import FencedError, PenstockError, UnavailableError
from penstock.secrets import without_password

STATUS_SECONDS = 1.0
OpenDatabase = Callable[[str, Sequence[SourceTable], SourceOptions], Database]
Report = Callable[[CaptureStatus], None]


def writer_name(capture: str) -> str:
    """Under this name a capture writes to the log."""
    return f"capture.{capture}"


def run_capture(
    declaration: CaptureDeclaration,
    log: Log,
    *,
    once: bool = False,
    stop: Stop | None = None,
    report: Report = lambda status: None,
    options: PumpOptions | None = None,
    open_source: OpenDatabase = open_database,
) -> CaptureStatus:
    """Capture until `stop` is set; with `once`, until everything is in the log that the database has at the start.

    The declaration is stored in the folder of the capture. `report` is called with the status about once a second, and
    whenever its state changes. Returns the last status; an error that is not worth another attempt is raised.
    """
    declaration.check()
    if open_source is open_database:
        check_database(declaration.url)
    folder = CaptureFolder.of(log, declaration.name)
    stored = load_declaration(folder.path)
    if stored is not None:
        declaration.check_continues(stored)
        declaration = declaration.accepting(stored.dropped)
    store_declaration(folder.path, declaration)
    run = _Run(declaration, log, folder, once, stop or threading.Event(), report, options or PumpOptions(), open_source)
    with folder.running():
        return run.run()


@dataclass(slots=True)
class _PumpStop:
    """Ends the pump, but not the capture, when `ended`."""

    stop: Stop
    ended: bool = False

    def is_set(self) -> bool:
        return self.ended or self.stop.is_set()

    def wait(self, timeout: float) -> bool:
        return self.ended or self.stop.wait(timeout)


@dataclass(slots=True)
class _Run:
    declaration: CaptureDeclaration
    log: Log
    folder: CaptureFolder
    once: bool
    stop: Stop
    report: Report
    options: PumpOptions
    open_source: OpenDatabase
    status: CaptureStatus = field(init=False)
    meter: CaptureMeter = field(default_factory=CaptureMeter)
    writer: Writer | None = None
    database: Database | None = None
    position: Position | None = None  # what is durable
    end: Position | None = None  # how far to go, with `once`
    failures: int = 0  # in a row
    done: bool = False
    written_rows: int = 0
    _told_at: float = 0.0

    def __post_init__(self) -> None:
        # Until the database is open, a table is as an earlier run has left it: apps that wait for it go on meanwhile.
        earlier = self.folder.load_status()
        known = {(table.table, table.topic): table for table in (earlier.tables if earlier is not None else ())}
        tables = tuple(
            known.get((table.table, table.topic), TableStatus(table.table, table.topic))
            for table in self.declaration.tables
        )
        status = CaptureStatus(self.declaration.name, self.declaration.shown_url, started=time.time(), tables=tables)
        self.status = this_process(status)

    def run(self) -> CaptureStatus:
        self._tell(state="starting")
        try:
            while not self.done and not self.stop.is_set():
                try:
                    self._capture()
                except UnavailableError as error:  # 4
                    self._wait(error)
        except PenstockError as error:
            failure = self._in_its_words(error)
            self._tell(state="failed", error=failure.message, hint=failure.hint)
            raise failure from None
        except BaseException:
            self._tell(state="stopped")
            raise
        finally:
            if self.writer is not None:
                self.writer.close()
        self._tell(state="stopped", error=None, hint=None, waiting_since=None)
        return self.status

    def _capture(self) -> None:
        """Steps 1 to 3."""
        if self.writer is None:
            self.writer = self.log.writer(writer_name(self.declaration.name))  # 1
        database = self._open()
        try:
            if self._do_requests(database):  # 2
                return  # the database is opened anew, with what was accepted
            self.position = self.writer.position
            self.database = database
            if self.once and self.end is None:
                self.end = database.end()
            self._pump(database)  # 3
        finally:
            self.database = None
            database.close()

    def _open(self) -> Database:
        options = self.declaration.options(identity=self.folder.identity())
        return self.open_source(self.declaration.url, self.declaration.source_tables, options)

    def _pump(self, database: Database) -> None:
        assert self.writer is not None
        partitions = {table.table: table.partitions for table in self.declaration.tables}
        copy = Copy(
            database,
            self.log,
            self.declaration.topics,
            self.folder.copy_files,
            name=self.declaration.name,
            partitions=partitions,
        )
        pump_stop = _PumpStop(self.stop)
        source = _ObservedCopy(copy, self, pump_stop)
        # One attempt: this loop tells who waits for what, and looks for requests before it tries again.
        options = replace(self.options, attempts=1)
        began_with = self.written_rows

        def count(progress: Progress) -> None:
            self.written_rows = began_with + progress.rows
            self._written(progress.position, copy.take_newest_commit())

        try:
            pump(source, self.writer, topics=self.declaration.topics, options=options, stop=pump_stop, report=count)
        finally:
            self.status = replace(self.status, tables=self._tables())
            copy.close()
        self.done = self.done or not pump_stop.ended

    # -- what happens while it pumps ----------------------------------------------------------------------------------

    def _written(self, position: Position | None, newest_commit: int) -> None:
        self.position = position
        self.failures = 0
        self.meter.written(self.written_rows, newest_commit)
        self._tell_sometimes()

    def look_around(self, item: Captured, pump_stop: _PumpStop) -> None:
        """Called for each item that the source gives."""
        if len(item.rows):
            return
        if self._has_reached_the_end():
            self.done = pump_stop.ended = True
        self._tell_sometimes(pump_stop)

    def _has_reached_the_end(self) -> bool:
        if self.end is None or self.database is None:
            return False
        return self.database.has_reached(CopyPosition.parse(self.position).source, self.end)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _do_requests(self, database: Database) -> bool:
        """Do what is requested, durably. Whether there was anything."""
        assert self.writer is not None
        requests = self.folder.requests()
        for path, request in requests.items():
            if request.dropped:
                self.declaration = self.declaration.accepting(frozenset(request.dropped))
                store_declaration(self.folder.path, self.declaration)
            if request.forget:
                self.folder.remove_copy_files()
            known = [table.table for table in self.declaration.tables if table.table in request.snapshot]
            place = CopyPosition.parse(self.writer.position)
            if known and place.source is not None:
                again = database.copy_again(place.source, known)
                self.writer.write([], CopyPosition(again, place.copying).to_json())
            self.folder.settle([path])
        return bool(requests)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, error: UnavailableError) -> None:
        self.failures += 1
        message = without_password(error.message, self.declaration.url)
        hint = None if error.hint is None else without_password(error.hint, self.declaration.url)
        since = self.status.waiting_since if self.status.state == "waiting" else time.time()
        self._tell(state="waiting", error=message, hint=hint, waiting_since=since)
        exponent = min(self.failures - 1, 30)
        pause = min(self.options.first_pause * 2**exponent, self.options.longest_pause)
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0 and not self.stop.wait(min(left, STATUS_SECONDS)):
            self._tell_sometimes()

    def _in_its_words(self, error: PenstockError) -> PenstockError:
        name, url = self.declaration.name, self.declaration.url
        if isinstance(error, FencedError):
            return FencedError(
                f"capture '{name}': another process captures under this name now; this one stops",
                hint=f"see which one: penstock capture status {name}",
            )
        error.message = without_password(error.message, url)
        error.hint = None if error.hint is None else without_password(error.hint, url)
        error.args = (error.message,)
        return error

    # -- status -------------------------------------------------------------------------------------------------------

    def _tell_sometimes(self, pump_stop: _PumpStop | None = None) -> None:
        if time.monotonic() - self._told_at < STATUS_SECONDS and self.status.state not in ("starting", "waiting"):
            return
        if pump_stop is not None and self.folder.has_requests():
            pump_stop.ended = True
        if self.database is None:
            self._tell(state=self.status.state)
            return
        tables = self._tables()
        is_copying = any(table.state != "complete" for table in tables)
        self._tell(
            state="copying" if is_copying else "following", tables=tables, error=None, hint=None, waiting_since=None
        )

    def _tables(self) -> tuple[TableStatus, ...]:
        assert self.database is not None
        copies = self.database.copies(CopyPosition.parse(self.position).source)
        return self.meter.tables(self.declaration.topics, copies)

    def _tell(self, **changes: object) -> None:
        self._told_at = time.monotonic()
        self.status = replace(
            self.status,
            updated=time.time(),
            rows=self.written_rows,
            rows_per_second=self.meter.rows_per_second,
            delay_seconds=self.meter.delay_seconds,
            **changes,  # type: ignore[arg-type]
        )
        if not self._is_replaced():
            self.folder.store_status(self.status)
        self.report(self.status)

    def _is_replaced(self) -> bool:
        """Whether the status is that of a process that has replaced this one."""
        stored = self.folder.load_status()
        return stored is not None and stored.started > self.status.started


@dataclass(slots=True)
class _ObservedCopy:
    """A copy that tells the run of each item."""

    copy: Copy
    run: _Run
    pump_stop: _PumpStop

    def tables(self) -> Sequence[SourceTable]:
        return self.copy.tables()

    def read(self, after: Position | None) -> Iterator[Captured]:
        items = self.copy.read(after)
        try:
            for item in items:
                self.run.look_around(item, self.pump_stop)
                yield item
        finally:
            if isinstance(items, Generator):
                items.close()

    def confirm(self, position: Position) -> None:
        self.copy.confirm(position)

    def close(self) -> None:
        self.copy.close()
