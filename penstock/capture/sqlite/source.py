"""A SQLite file as a `Database`: connecting, waiting for changes, confirming, and what is asked beside the stream."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from penstock.capture.sqlite.connection import connect, reading, sqlite_errors, writing
from penstock.capture.sqlite.history import find_lost_history, lost_changes_error
from penstock.capture.sqlite.installation import (
    install_tables,
    install_triggers,
    last_change,
    read_identity,
    remove_reader,
)
from penstock.capture.sqlite.position import Place
from penstock.capture.sqlite.queries import read_leniently
from penstock.capture.sqlite.rows import RowShape
from penstock.capture.sqlite.schema import read_schema, table_names
from penstock.capture.sqlite.snapshot import read_spilled_rows, spill_rows
from penstock.capture.sqlite.stream import Stream
from penstock.capture.sqlite.upkeep import Upkeep, read_backlog
from penstock.contracts import (
    Captured,
    Position,
    SourceHealth,
    SourceOptions,
    SourceTable,
    TableCopy,
    TableEvent,
    TableSnapshot,
)
from penstock.errors import DeclarationError, PenstockError
from penstock.suggest import closest

_POLL_SECONDS = 0.01
_HEARTBEAT_SECONDS = 1.0


class SqliteDatabase:
    """The `Database` of `sqlite:///shop.db`. Without tables, all tables of the file are captured."""

    def __init__(self, path: Path, tables: Sequence[SourceTable], options: SourceOptions) -> None:
        self.path = path
        self.options = options
        self._wanted = {table.name: table for table in tables}
        self._reader = f"{options.name}/{options.identity}"
        self._open: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the open connection
        self._upkeep: Upkeep | None = None
        self._cleaned = 0.0
        self._closed = threading.Event()

    def __repr__(self) -> str:
        return f"SqliteDatabase({str(self.path)!r})"

    # -- reading

    def tables(self) -> Sequence[SourceTable]:
        connection = self._connection()
        with sqlite_errors(self.path), reading(connection):
            shapes = [self._shape(connection, name) for name in self._names(connection)]
        return [replace(shape.wanted, schema=shape.schema, key=shape.table.key) for shape in shapes]

    def read(self, after: Position | None) -> Iterator[Captured | TableEvent]:
        place = None if after is None else Place.parse(after)
        while not self._closed.is_set():
            connection = self._connection()
            stream = self._begin(connection, place)
            place = stream.place
            while connection is self._open and not self._closed.is_set():
                version = self._data_version(connection)
                is_idle = True
                for item in stream.next_cycle():
                    is_idle = False
                    yield item
                    if self._closed.is_set():
                        return
                self._clean_at_times()
                if is_idle:
                    yield Captured("", position=place.to_json())
                    self._wait_for_change(version)
                    self._close_if_replaced()

    def _begin(self, connection: sqlite3.Connection, place: Place | None) -> Stream:
        with sqlite_errors(self.path):
            wanted = {name: self._wanted.get(name, SourceTable(name)) for name in self._names(connection)}
        if place is None:
            stream = Stream.begin(connection, self.path, self._reader, wanted, self.options)
        else:
            stream = Stream(connection, self.path, self._reader, wanted, self.options, place)
        confirmed = 0 if self._upkeep is None else self._upkeep.confirmed
        self._upkeep = Upkeep(connection, self._reader, confirmed)
        return stream

    def _wait_for_change(self, version: int) -> None:
        """Wait until somebody has committed something, at most until the next heartbeat."""
        deadline = time.monotonic() + _HEARTBEAT_SECONDS
        while not self._closed.wait(_POLL_SECONDS) and time.monotonic() < deadline:
            if self._open is None or self._data_version(self._open) != version:
                return

    def _data_version(self, connection: sqlite3.Connection) -> int:
        """Changes whenever somebody else has committed."""
        with sqlite_errors(self.path):
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

    # -- confirming

    def confirm(self, position: Position) -> None:
        place = Place.parse(position)
        if self._upkeep is not None:
            self._upkeep.confirmed = max(self._upkeep.confirmed, place.id)

    def _clean_at_times(self) -> None:
        if self._upkeep is not None and time.monotonic() >= self._cleaned + _HEARTBEAT_SECONDS:
            with sqlite_errors(self.path):
                self._upkeep.clean()
            self._cleaned = time.monotonic()

    # -- connections

    def _connection(self) -> sqlite3.Connection:
        if self._closed.is_set():
            raise DeclarationError(f"{self.path}: this capture is closed")
        if self._open is None:
            self._open = connect(self.path)
            self._file = _identify(self.path)
        return self._open

    def _close_if_replaced(self) -> None:
        """An open file stays the same where another one is moved into its place: open that one instead."""
        if self._open is not None and _identify(self.path) != self._file:
            self._open.close()
            self._open = None

    def close(self) -> None:
        self._closed.set()
        connection, self._open = self._open, None
        if connection is None:
            return
        if self._upkeep is not None and self._upkeep.connection is connection:
            with suppress(sqlite3.Error, PenstockError):  # what is not removed now is removed by the next capture
                self._upkeep.clean()
        connection.close()

    def _names(self, connection: sqlite3.Connection) -> list[str]:
        return list(self._wanted) or table_names(connection)

    def _shape(self, connection: sqlite3.Connection, name: str) -> RowShape:
        table = read_schema(connection, name)
        return RowShape.of(table, self._wanted.get(name, SourceTable(name)), self.options.dropped)

    # -- positions

    def copy_again(self, position: Position | None, tables: Sequence[str]) -> Position | None:
        place = None if position is None else Place.parse(position)
        known = list(self._wanted) or (list(place.tables) if place is not None else [])
        for name in tables:
            if name not in known:
                hint = closest(name, known) or f"its tables are: {', '.join(known) or 'none'}"
                raise DeclarationError(f"{self.path}: '{name}' is not captured", hint=hint)
        if place is None or set(tables) >= set(known):
            return None
        for name in tables:
            place.tables.pop(name, None)
        return place.to_json()

    def copies(self, position: Position | None) -> Sequence[TableCopy]:
        places = {} if position is None else Place.parse(position).tables
        return [
            TableCopy(name, places[name].state, places[name].rows) if name in places else TableCopy(name, "waiting")
            for name in list(self._wanted) or list(places)
        ]

    def end(self) -> Position:
        connection = self._connection()
        with sqlite_errors(self.path), reading(connection):
            return _read_end(connection)

    def has_reached(self, position: Position | None, end: Position) -> bool:
        if not isinstance(end, int) or isinstance(end, bool):
            raise DeclarationError(f"capture of SQLite: this is not a position of its end: {end!r}")
        if position is None:
            return False
        place = Place.parse(position)
        return place.id >= end and place.table_to_copy(list(self._wanted)) is None

    # -- beside the stream

    def health(self, position: Position | None) -> SourceHealth:
        place = None if position is None else Place.parse(position)
        connection = self._connection()
        with sqlite_errors(self.path):
            if place is None:
                return SourceHealth("not begun", limit_bytes=self.options.max_retained_bytes)
            with reading(connection):
                problem = find_lost_history(connection, self._reader, place.database, (place.id, place.at))
            if problem is not None:
                error = lost_changes_error(self.path, problem, self.options.name)
                return SourceHealth("lost", problem=error.message, hint=error.hint)
            backlog = read_backlog(connection, place.id)
        state = "copying" if place.table_to_copy(list(self._wanted)) else "following"
        return SourceHealth(
            f"{state}, {backlog.rows_behind:,} changes waiting",
            behind_bytes=backlog.bytes_behind,
            retained_bytes=backlog.bytes_retained,
            limit_bytes=self.options.max_retained_bytes,
            last_commit=datetime.fromtimestamp(backlog.last_commit / 1000, UTC),
        )

    def install(self) -> None:
        """Add the tables and triggers now, rather than when the capture first runs."""
        connection = self._connection()
        with sqlite_errors(self.path), writing(connection):
            shapes = [self._shape(connection, name) for name in self._names(connection)]
            install_tables(connection)
            for shape in shapes:
                install_triggers(connection, shape.table)

    def remove(self) -> None:
        connection = self._connection()
        with sqlite_errors(self.path), writing(connection):
            remove_reader(connection, self._reader)

    def snapshot(self, table: str) -> TableSnapshot:
        connection = self._connection()
        folder = tempfile.TemporaryDirectory(prefix="penstock-")
        file = Path(folder.name) / "rows.arrow"
        with sqlite_errors(self.path), reading(connection):
            end = _read_end(connection)
            shape = self._shape(connection, table)
            read_leniently(connection, lambda: spill_rows(connection, shape, file))
        return TableSnapshot(end, read_spilled_rows(folder, file))


def _read_end(connection: sqlite3.Connection) -> int:
    """The id of the last change; 0 as long as nothing is installed, since then everything is yet to be copied."""
    return 0 if read_identity(connection) is None else last_change(connection)[0]


def _identify(path: Path) -> tuple[int, int] | None:
    """The device and the inode of a file; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
